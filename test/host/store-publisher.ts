/**
 * Publishes and removes versions in an endless loop, for a test that kills it. It prints `begin` and `done` with the
 * version and the sha256 of its model ('-' for a removal). Its arguments: `<dataDir> <functionsDir> <round>`.
 */
import { writeSync } from 'node:fs';
import { DiskModelStore } from '../../src/host/store/index.ts';
import { defaults, metadata, publish, sha256 } from './store-fixtures.ts';

const [dataDir, functionsDir, round] = process.argv.slice(2);
if (dataDir === undefined || functionsDir === undefined || round === undefined) throw new Error('three arguments');

const ignore = (): void => undefined;
const store = new DiskModelStore({
  dataDir,
  functionsDir,
  defaults,
  limits: { uploadBytesMax: 10_000_000 },
  inTurn: async (_caller, _signal, work) => await work(1e9),
  validate: () => Promise.resolve({ metadata, externalFiles: [] }),
  logger: { info: ignore, warn: ignore, error: ignore },
});
await store.start();
/** In one system call, so that a kill cannot leave half a line. */
const say = (line: string): void => void writeSync(1, `${line}\n`);
say('ready');
for (let count = 0; ; count++) {
  const name = `f${count % 3}`;
  const version = `r${round}.${count}`;
  const content = Buffer.alloc(1 + ((count * 7919) % 300_000), `${round} ${count} `);
  const hex = sha256(content);
  say(`begin ${name}@${version} ${hex}`);
  await publish(store, name, content, { version });
  say(`done ${name}@${version} ${hex}`);
  const [oldest, ...others] = store.versions(name);
  if (oldest !== undefined && others.length > 2) {
    say(`begin ${oldest.key} -`);
    await store.remove(name, oldest.version);
    say(`done ${oldest.key} -`);
  }
}
