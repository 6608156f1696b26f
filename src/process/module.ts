/** Where the modules lie that run in processes and threads of their own. */

const here = new URL(import.meta.url);
const sourceFolder = new URL('../', here).href;
const compiledFolder = new URL('../../dist/', here).href;

/**
 * The address of a module, or of a folder, by its path from the file that names it. Even from src/ (tests, tsx) it is
 * the compiled one: Node 20 cannot run TypeScript in a process or thread that it starts.
 *
 * @param path relative, with the ending `.js`
 * @param importer `import.meta.url` of the file that names it
 */
export function compiledModule(path: string, importer: string): URL {
  const { href } = new URL(path, importer);
  const isSource = importer.endsWith('.ts') && href.startsWith(sourceFolder);
  return new URL(isSource ? compiledFolder + href.slice(sourceFolder.length) : href);
}
