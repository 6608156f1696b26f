/** The source files that each of many calls runs something of: what a reader of one call passes. */
import { Session, type Profiler } from 'node:inspector/promises';
import { join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(import.meta.dirname, '../..');

/** Vite's way to another module's export is not a function of the source. */
const exported = /^\(\) => \{ ?try ?\{ ?return /;

/** By V8's own counts, in this process alone. @param work so many calls, warm, and one after another */
export async function filesOfEach(calls: number, work: () => Promise<unknown>): Promise<string[]> {
  const session = new Session();
  session.connect();
  try {
    await session.post('Debugger.enable');
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    await work();
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const files: string[] = [];
    for (const script of result) {
      const file = sourceOf(script);
      if (file === undefined) continue;
      const { scriptSource } = await session.post('Debugger.getScriptSource', { scriptId: script.scriptId });
      const isRun = script.functions.some(({ ranges: [whole] }) => {
        if (whole === undefined || whole.count < calls) return false;
        return !exported.test(scriptSource.slice(whole.startOffset, whole.endOffset));
      });
      if (isRun) files.push(file);
    }
    return files.sort();
  } finally {
    session.disconnect();
  }
}

/** Undefined: it is a test, or none of ours. */
function sourceOf({ url }: Profiler.ScriptCoverage): string | undefined {
  const file = relative(root, url.startsWith('file:') ? fileURLToPath(url) : url).replaceAll(sep, '/');
  return /^src\/.*(?<!\.test)\.ts$/.test(file) ? file : undefined;
}
