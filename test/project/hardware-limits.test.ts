import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '..', '..');

/** What the system says of the whole machine, or of this process. In a container it is not what a host may use. */
const callsOfTheSystem = [
  /\b(?:totalmem|freemem|availableParallelism)\b/,
  /\b(?:os\.)?cpus\(\)/,
  /\bimport\b[^;]*\bcpus\b[^;]*\bfrom 'node:os'/,
  /\bprocess\.(?:availableMemory|constrainedMemory)\b/,
  /['"`/](?:proc\/meminfo|memory\.max|memory\.current|memory\.stat|memory\.limit_in_bytes|cpu\.max|pids\.max)\b/,
  /\b(?:totalBytes|ownBytes)\s*[/*]\s*\d|\bownBytes\b.*\*\s*0?\.\d/,
];

const matches = (text: string): readonly RegExp[] => callsOfTheSystem.filter((call) => call.test(text));

const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .map((path) => path.replaceAll('\\', '/'))
  .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'));

describe('memory and cores of the machine', () => {
  test('memory and cores of the machine are read and divided in src/hardware alone', () => {
    const outside = sources
      .filter((path) => !path.startsWith('hardware/'))
      .flatMap((path) => {
        const found = matches(readFileSync(join(root, 'src', path), 'utf8'));
        return found.length === 0 ? [] : [`${path}: ${String(found[0])}`];
      });
    expect(outside).toEqual([]);
  });

  test.each([
    "import { totalmem } from 'node:os';",
    "import { cpus, tmpdir } from 'node:os';",
    'const cores = os.cpus().length;',
    'const limit = process.availableMemory() / 2;',
    'const hostBytes = readMemory().totalBytes / 2;',
    "readInteger(root, `${'sys/fs/cgroup'}/memory.max`)",
  ])('the search finds %s', (line) => {
    expect(matches(line)).not.toEqual([]);
  });
});
