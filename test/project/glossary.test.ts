/** docs/design.md gives each word of the source one meaning. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

test('every word of the glossary is explained once', () => {
  const design = readFileSync(join(root, 'docs', 'design.md'), 'utf8');
  const [, glossary = ''] = /^## Glossary$([\s\S]*?)^## /m.exec(design) ?? [];
  const words = [...glossary.matchAll(/^\| ([a-z][a-z -]*?) +\|/gm)].map(([, word]) => word);
  expect(words.length).toBeGreaterThan(10);
  expect(new Set(words).size).toBe(words.length);
});
