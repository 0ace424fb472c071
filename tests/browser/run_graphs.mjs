// node run_graphs.mjs FOLDER: prints the outputs of the cases in FOLDER/cases.json, by onnxruntime-node.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import ort from "onnxruntime-node";
import { outputsOf } from "./graphs.mjs";

const read = async (name) => {
  const bytes = await readFile(join(process.argv[2], name));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
};
const cases = JSON.parse(await readFile(join(process.argv[2], "cases.json"), "utf8"));
process.stdout.write(JSON.stringify(await outputsOf(ort, cases, read)));
