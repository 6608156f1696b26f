/** `GET /` without a browser: what this host is and which functions can be called. */
import { formatDuration } from '../../tools/index.ts';
import { curlCall } from '../rollout/example-call.ts';
import type { FunctionVersion } from '../types.ts';

const summary = 'Turntable: a host for ONNX models as functions.';

export function homeText(baseUrl: string, functions: readonly FunctionVersion[]): string {
  const lines = functions.flatMap((version) => [
    `${version.name} (version ${version.version}, ${version.state.status}, SLO ` +
      `${formatDuration(version.settings.sloMs)})`,
    ...(version.settings.description === '' ? [] : [`  ${version.settings.description}`]),
    `  ${curlCall(baseUrl, version)}`,
    '',
  ]);
  const none = ['No functions yet. Publish one:', `  curl -T model.onnx ${baseUrl}/functions/my-model`, ''];
  const links = ['/functions', '/v2', '/metrics'].map((path) => `  ${baseUrl}${path}`);
  return [summary, '', ...(lines.length === 0 ? none : lines), 'More:', ...links, ''].join('\n');
}
