/** The alerts of deploy/prometheus as a resource of the Prometheus Operator. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const rules = join(dirname(dirname(fileURLToPath(import.meta.url))), 'deploy', 'prometheus', 'turntable.rules.yaml');

export function renderAlerts(): string {
  const text = readFileSync(rules, 'utf8');
  const groups = text.slice(text.indexOf('groups:')).trimEnd();
  return [
    '# deploy/prometheus/turntable.rules.yaml for the Prometheus Operator: `npm run docs` writes it.',
    'apiVersion: monitoring.coreos.com/v1',
    'kind: PrometheusRule',
    'metadata:',
    '  name: turntable',
    '  labels: { app.kubernetes.io/part-of: turntable }',
    'spec:',
    ...groups.split('\n').map((line) => (line === '' ? line : `  ${line}`)),
    '',
  ].join('\n');
}
