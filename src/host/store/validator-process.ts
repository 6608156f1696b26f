/**
 * The validator's process: says that it has loaded its own code, opens the model that its argument names and writes one
 * line of JSON, a `ValidatorReply`, to file descriptor 3. How it ends when it writes none is part of the answer too: see validator.ts.
 */
import { writeFileSync } from 'node:fs';
import { setPriority } from 'node:os';
import { checkModelFile } from './model-check.ts';
import { openingLine } from './validator.ts';

const [modelPath] = process.argv.slice(2);
if (modelPath === undefined) throw new Error('usage: validator-process <model file>');

try {
  // When memory runs out, this process goes first, and the host stays.
  writeFileSync('/proc/self/oom_score_adj', '1000');
  // What serves requests has the cores first.
  setPriority(10);
} catch {
  // Neither is there on every system, and both are only a courtesy.
}

writeFileSync(3, openingLine);
const reply = await checkModelFile(modelPath);
writeFileSync(3, `${JSON.stringify(reply)}\n`);
// The runtime's threads and its tear-down have nothing to add.
process.exit(0);
