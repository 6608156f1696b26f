// Imports go through a folder's index.ts in src/. In dist/ they go to the file that has the code: esbuild gives whoever
// imports one name of an index.ts all files behind it, so `turntable key` would read the whole host.
import { readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';

const statement = /^(import|export) (\{[^}]*\}|\*) from '(\.[^']*)';$/gm;
const declared = /^export (?:async )?(?:const|class|function\*?) (\w+)/gm;

/** @returns rewrites a source's text; lines keep their numbers */
export function straightImports() {
  const doors = new Map();

  /** The file that declares a name which an index.ts exports, and its name there; undefined for a type. */
  function declaration(door, name) {
    const exports = doors.get(door) ?? exportsOf(door);
    doors.set(door, exports);
    return exports.get(name);
  }

  function exportsOf(door) {
    const found = new Map();
    const text = readFileSync(door, 'utf8');
    for (const [, name] of text.matchAll(declared)) found.set(name, { file: door, name });
    for (const [, kind, names, path] of text.matchAll(statement)) {
      if (kind !== 'export') continue;
      const file = join(dirname(door), path);
      if (names === '*') for (const [name, place] of exportsOf(file)) found.set(name, place);
      else
        for (const { name, as } of listed(names))
          found.set(as, isDoor(file) ? declaration(file, name) : { file, name });
    }
    return found;
  }

  return (file, text) =>
    text.replaceAll(statement, (whole, kind, names, path) => {
      const door = join(dirname(file), path);
      if (kind !== 'import' || !isDoor(door)) return whole;
      const lines = listed(names).map(({ name, as }) => {
        const place = declaration(door, name) ?? { file: door, name };
        const way = relative(dirname(file), place.file).split(sep).join('/');
        return `import { ${place.name} as ${as} } from '${way.startsWith('.') ? way : `./${way}`}';`;
      });
      return lines.join(' ') + '\n'.repeat(whole.split('\n').length - 1);
    });
}

const isDoor = (file) => file.endsWith(`${sep}index.ts`);

/** The values in the braces of an import or export. */
function listed(names) {
  return names
    .slice(1, -1)
    .split(',')
    .map((each) => each.trim())
    .filter((each) => each !== '' && !each.startsWith('type '))
    .map((each) => {
      const [name, as = name] = each.split(' as ');
      return { name, as };
    });
}
