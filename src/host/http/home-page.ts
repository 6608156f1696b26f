/** `GET /`: what this host is and what can be called, for whoever opens it in a browser or with curl. */
import { formatDuration } from '../config-units.ts';
import { exampleCall } from '../example-call.ts';
import type { FunctionVersion, TensorSpec } from '../types.ts';

export interface HomePage {
  readonly baseUrl: string;
  readonly functions: readonly FunctionVersion[];
}

const summary = 'Turntable: a host for ONNX models as functions.';

/** One command that calls the function, ready to be pasted into a shell. */
export function curlCall(baseUrl: string, version: FunctionVersion): string {
  const { example } = version.settings;
  if (example !== undefined) return exampleCall(baseUrl, version.name, example);
  const url = `${baseUrl}/function/${encodeURIComponent(version.name)}`;
  if (version.handlerPath !== undefined) return `curl -s --data-binary @input ${url}`;
  const inputs = version.metadata?.inputs ?? [];
  const [only] = inputs;
  const body =
    inputs.length === 1 && only !== undefined
      ? { input: exampleOf(only) }
      : { inputs: Object.fromEntries(inputs.map((input) => [input.name, exampleOf(input)])) };
  const json = JSON.stringify(body);
  // A model with thousands of inputs is not called by hand.
  return json.length > 300
    ? `curl -s --data @input.json ${url}`
    : `curl -s --data '${json.replaceAll("'", '\\u0027')}' ${url}`;
}

/** Nested zeros of the input's shape, 1 where a size varies; '...' where that is too long for a line. */
function exampleOf({ shape, datatype }: TensorSpec): unknown {
  const element = datatype === 'BYTES' ? 'text' : datatype === 'BOOL' ? false : 0;
  if (shape.reduce((product, size) => product * Math.max(1, size), 1) > 64) return '...'.repeat(100);
  return shape.reduceRight<unknown>((inner, size) => Array.from({ length: Math.max(1, size) }, () => inner), element);
}

export function homeText({ baseUrl, functions }: HomePage): string {
  const lines = functions.flatMap((version) => [
    `${version.name} (version ${version.version}, ${version.state.status}, SLO ${formatDuration(version.settings.sloMs)})`,
    ...(version.settings.description === '' ? [] : [`  ${version.settings.description}`]),
    `  ${curlCall(baseUrl, version)}`,
    '',
  ]);
  const none = ['No functions yet. Publish one:', `  curl -T model.onnx ${baseUrl}/functions/my-model`, ''];
  const links = ['/functions', '/v2', '/metrics'].map((path) => `  ${baseUrl}${path}`);
  return [summary, '', ...(lines.length === 0 ? none : lines), 'More:', ...links, ''].join('\n');
}

export function homeHtml(page: HomePage): string {
  const rows = page.functions.map(
    (version) => `<section>
<h2>${escapeHtml(version.name)}</h2>
<p>version ${escapeHtml(version.version)}, ${version.state.status}, SLO ${formatDuration(version.settings.sloMs)}</p>
<p>${escapeHtml(version.settings.description)}</p>
<pre>${escapeHtml(curlCall(page.baseUrl, version))}</pre>
</section>`,
  );
  const none = `<p>No functions yet. Publish one:</p>
<pre>curl -T model.onnx ${escapeHtml(page.baseUrl)}/functions/my-model</pre>`;
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Turntable</title></head>
<body>
<h1>Turntable</h1>
<p>${escapeHtml(summary)}</p>
${rows.length === 0 ? none : rows.join('\n')}
<p><a href="/functions">functions</a> · <a href="/v2">server</a> · <a href="/metrics">metrics</a></p>
</body>
</html>
`;
}

function escapeHtml(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  return text.replaceAll(/[&<>"]/g, (character) => entities[character] ?? character);
}
