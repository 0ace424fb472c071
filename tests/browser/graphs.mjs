// Runs exported graphs with the onnxruntime it is given: that of Node or that of a browser.

const ARRAYS = { float64: Float64Array, float32: Float32Array };

/** All outputs of all runs of all cases. `read` returns a promise of the bytes of a file, as an ArrayBuffer. */
export async function outputsOf(ort, cases, read) {
  const results = [];
  for (const { model, input, type, runs } of cases) {
    const session = await ort.InferenceSession.create(new Uint8Array(await read(model)));
    const ofCase = [];
    for (const { rows, shape } of runs) {
      const tensor = new ort.Tensor(type, new ARRAYS[type](await read(rows)), shape);
      const outputs = await session.run({ [input]: tensor });
      const entries = Object.entries(outputs).map(([name, { type, dims, data }]) => [
        name,
        // JSON has no NaN and no infinities
        { type, dims: [...dims], data: Array.from(data, (v) => (Number.isFinite(v) ? v : String(v))) },
      ]);
      ofCase.push(Object.fromEntries(entries));
    }
    await session.release();
    results.push(ofCase);
  }
  return results;
}
