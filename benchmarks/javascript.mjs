// node javascript.mjs FOLDER: prints the milliseconds per call of the cases in FOLDER/cases.json. The browser uses `times`.

const LEAST = 20; // milliseconds per measurement: browsers round their clocks

/** The milliseconds per call of each case, the median of some measurements that alternate between the cases. */
export async function times(ort, cases, read, rounds) {
  const calls = [];
  for (const { model, rows, shape } of cases) {
    const session = await ort.InferenceSession.create(new Uint8Array(await read(model)));
    const values = new Float64Array(await read(rows));
    const call = () => session.run({ features: new ort.Tensor("float64", values, shape) });
    for (let i = 0; i < 3; i++) await call();
    calls.push(call);
  }
  const found = calls.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, call] of calls.entries()) {
      const start = performance.now();
      let n = 0;
      do {
        await call();
        n++;
      } while (performance.now() - start < LEAST);
      found[i].push((performance.now() - start) / n);
    }
  }
  return found.map((values) => values.sort((a, b) => a - b)[values.length >> 1]);
}

if (globalThis.process?.argv[1]?.endsWith("javascript.mjs")) {
  const { readFileSync } = await import("node:fs");
  const { createRequire } = await import("node:module");
  const [folder, packages, rounds] = process.argv.slice(2);
  const ort = createRequire(`${packages}/`)("onnxruntime-node");
  const create = ort.InferenceSession.create;
  ort.InferenceSession.create = (model) => create(model, { intraOpNumThreads: 1 });
  const read = async (name) => new Uint8Array(readFileSync(`${folder}/${name}`)).buffer;
  console.log(JSON.stringify(await times(ort, JSON.parse(readFileSync(`${folder}/cases.json`)), read, Number(rounds))));
}
