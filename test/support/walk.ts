/** The source files that each of many calls runs something of: what a reader of one call passes. */
import { Session, type Profiler } from 'node:inspector/promises';
import { join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(import.meta.dirname, '../..');

/** Vite's way to another module's export is not a function of the source. */
const exported = /^\(\) => \{ ?try ?\{ ?return /;

/**
 * By V8's own counts, in this process alone. What timers run between calls is hardly there in each of them.
 *
 * @param least how often a file's function must have run in each, where one is many calls
 */
export async function filesOfEach(times: number, call: () => Promise<unknown>, least = 1): Promise<string[]> {
  const session = new Session();
  session.connect();
  try {
    await session.post('Debugger.enable');
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    let inAll: Set<string> | undefined;
    for (let made = 0; made < times; made++) {
      await call();
      const files = await filesRun(session, least);
      inAll = inAll === undefined ? files : new Set([...inAll].filter((file) => files.has(file)));
    }
    return [...(inAll ?? [])].sort();
  } finally {
    session.disconnect();
  }
}

/** Since it was last asked. */
async function filesRun(session: Session, least: number): Promise<Set<string>> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  const files = new Set<string>();
  for (const script of result) {
    const file = sourceOf(script);
    if (file === undefined) continue;
    const { scriptSource } = await session.post('Debugger.getScriptSource', { scriptId: script.scriptId });
    const isRun = script.functions.some(({ ranges: [whole] }) => {
      if (whole === undefined || whole.count < least) return false;
      return !exported.test(scriptSource.slice(whole.startOffset, whole.endOffset));
    });
    if (isRun) files.add(file);
  }
  return files;
}

/** Undefined: it is a test, or none of ours. */
function sourceOf({ url }: Profiler.ScriptCoverage): string | undefined {
  const file = relative(root, url.startsWith('file:') ? fileURLToPath(url) : url).replaceAll(sep, '/');
  return /^src\/.*(?<!\.test)\.ts$/.test(file) ? file : undefined;
}
