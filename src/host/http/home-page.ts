/** `GET /`: what this host is and what can be called, for whoever opens it in a browser or with curl. */
import { formatDuration } from '../config-units.ts';
import { curlCall } from '../example-call.ts';
import type { FunctionVersion } from '../types.ts';

export interface HomePage {
  readonly baseUrl: string;
  readonly functions: readonly FunctionVersion[];
}

const summary = 'Turntable: a host for ONNX models as functions.';

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
