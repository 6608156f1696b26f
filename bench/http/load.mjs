// A load generator in a process of its own: raw sockets that send one ready-made request each and wait for its reply.
// It understands just enough HTTP to find the end of a reply, so that it takes little of the cores that it shares with
// what it measures. Reads one JSON line of settings, writes one JSON line of results.
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const [line] = await once(createInterface({ input: process.stdin }), 'line');
const { url, path, headers, bodyBase64, connections, requests } = JSON.parse(line);
const { hostname, port } = new URL(url);
const body = Buffer.from(bodyBase64, 'base64');
const head = [
  `POST ${path} HTTP/1.1`,
  `Host: ${hostname}:${port}`,
  `Content-Length: ${body.byteLength}`,
  ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
];
const request = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]);

const latenciesMs = [];
const statuses = {};
let begun = 0;

/** One connection: a request, its reply, the next request, until all have been begun. */
function run() {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    socket.setNoDelay(true);
    let startMs = 0;
    let pending = Buffer.alloc(0);
    const next = () => {
      if (begun >= requests) {
        socket.end();
        resolve();
        return;
      }
      begun++;
      startMs = performance.now();
      socket.write(request);
    };
    socket.on('connect', next);
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('the connection was closed before its reply')));
    socket.on('data', (chunk) => {
      pending = pending.byteLength === 0 ? chunk : Buffer.concat([pending, chunk]);
      const headEnd = pending.indexOf('\r\n\r\n');
      if (headEnd === -1) return;
      const text = pending.toString('latin1', 0, headEnd);
      const length = Number(/\ncontent-length: *(\d+)/i.exec(text)?.[1] ?? 0);
      if (pending.byteLength < headEnd + 4 + length) return;
      latenciesMs.push(performance.now() - startMs);
      const status = text.slice(9, 12);
      statuses[status] = (statuses[status] ?? 0) + 1;
      pending = pending.subarray(headEnd + 4 + length);
      next();
    });
  });
}

const startMs = performance.now();
await Promise.all(Array.from({ length: connections }, run));
const tookMs = performance.now() - startMs;
latenciesMs.sort((a, b) => a - b);
const quantile = (q) => latenciesMs[Math.min(latenciesMs.length - 1, Math.floor(q * latenciesMs.length))];
process.stdout.write(
  `${JSON.stringify({ tookMs, statuses, perSecond: (latenciesMs.length / tookMs) * 1000, p50Ms: quantile(0.5), p99Ms: quantile(0.99) })}\n`,
);
