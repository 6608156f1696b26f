// A load generator in its own process. Reads one JSON line of settings, writes one JSON line of results.
//
// Its client 'raw' sends one ready-made request on each of its sockets and waits for the reply. It parses just enough HTTP
// to find the end of a reply, so it takes little of the cores that it shares with the servers.
// Its client 'node' is node:http with a keep-alive agent, as a program in Node would use.
//
// `warmup` requests come first and count for nothing: V8 compiles the client on a core of its own for that long, and
// that core is missing to a server of two processes.
import { once } from 'node:events';
import { Agent, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const [line] = await once(createInterface({ input: process.stdin }), 'line');
const { url, path, paths = [path], headers, bodyBase64, connections, warmup = 0, requests, client } = JSON.parse(line);
const { hostname, port } = new URL(url);
const body = Buffer.from(bodyBase64 ?? '', 'base64');
/** One for each path, sent in turns. In place of a path there may be one with a body and headers of its own. */
const ready = paths.map((each) =>
  request({ headers, bodyBase64, ...(typeof each === 'string' ? { path: each } : each) }),
);

function request({ path: to, headers: own, bodyBase64: text }) {
  const content = Buffer.from(text, 'base64');
  const head = [
    `POST ${to} HTTP/1.1`,
    `Host: ${hostname}:${port}`,
    `Content-Length: ${content.byteLength}`,
    ...Object.entries(own).map(([name, value]) => `${name}: ${value}`),
  ];
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), content]);
}

let latenciesMs = [];
let statuses = {};
let begun = 0;
let requestsMax = 0;

/** One connection: a request, its reply, the next request, until all have been started. */
function runRaw() {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    socket.setNoDelay(true);
    let startMs = 0;
    let chunks = [];
    let bytes = 0;
    /** Of the whole reply; 0: its head is not there yet. */
    let replyBytes = 0;
    let status = '';
    const next = () => {
      if (begun >= requestsMax) {
        socket.end();
        resolve();
        return;
      }
      begun++;
      startMs = performance.now();
      socket.write(ready[begun % ready.length]);
    };
    socket.on('connect', next);
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('the connection was closed before its reply')));
    socket.on('data', (chunk) => {
      chunks.push(chunk);
      bytes += chunk.byteLength;
      if (replyBytes === 0) {
        if (chunks.length > 1) chunks = [Buffer.concat(chunks)];
        const [head] = chunks;
        const headEnd = head.indexOf('\r\n\r\n');
        if (headEnd === -1) return;
        const text = head.toString('latin1', 0, headEnd);
        replyBytes = headEnd + 4 + Number(/\ncontent-length: *(\d+)/i.exec(text)?.[1] ?? 0);
        status = text.slice(9, 12);
      }
      if (bytes < replyBytes) return;
      latenciesMs.push(performance.now() - startMs);
      statuses[status] = (statuses[status] ?? 0) + 1;
      // The next request is sent after the reply, so nothing follows it.
      chunks = [];
      bytes = 0;
      replyBytes = 0;
      next();
    });
  });
}

/** The same with node:http. */
async function runNode() {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const options = { method: 'POST', agent, headers: { ...headers, 'Content-Length': body.byteLength } };
  while (begun < requestsMax) {
    begun++;
    const startMs = performance.now();
    const status = await new Promise((resolve, reject) => {
      const sent = httpRequest(`${url}${paths[begun % paths.length]}`, options, (response) => {
        response.on('data', () => undefined);
        response.on('end', () => resolve(response.statusCode));
        response.on('error', reject);
      });
      sent.on('error', reject);
      sent.end(body);
    });
    latenciesMs.push(performance.now() - startMs);
    statuses[status] = (statuses[status] ?? 0) + 1;
  }
  agent.destroy();
}

/** Returns how long it took. */
async function run(count) {
  latenciesMs = [];
  statuses = {};
  begun = 0;
  requestsMax = count;
  const startMs = performance.now();
  await Promise.all(Array.from({ length: connections }, client === 'node' ? runNode : runRaw));
  return performance.now() - startMs;
}

if (warmup > 0) await run(warmup);
const tookMs = await run(requests);
latenciesMs.sort((a, b) => a - b);
const quantile = (q) => latenciesMs[Math.min(latenciesMs.length - 1, Math.floor(q * latenciesMs.length))];
process.stdout.write(
  `${JSON.stringify({ tookMs, statuses, perSecond: (latenciesMs.length / tookMs) * 1000, p50Ms: quantile(0.5), p99Ms: quantile(0.99) })}\n`,
);
