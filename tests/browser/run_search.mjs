// node run_search.mjs SEARCH INDEX < texts.json: prints what search.mjs finds for each text.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [module, file] = process.argv.slice(2);
const { Collection, tokens } = await import(pathToFileURL(module));
const index = JSON.parse(readFileSync(file, "utf8"));
const { texts, queries } = JSON.parse(readFileSync(0, "utf8"));
const collection = new Collection(index);
const found = queries.map((text) => {
  const words = collection.words(text);
  const candidates = collection.candidates(words);
  return {
    words: words.map((t) => index.vocabulary[t]),
    candidates,
    features: Array.from(collection.features(candidates, words)),
  };
});
const split = texts.map((text) => tokens(text, collection.stopWords));
process.stdout.write(JSON.stringify({ tokens: split, queries: found }));
