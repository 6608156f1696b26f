// Calls in a process of their own: what one client does must not delay what another one measures. Reads one JSON line of
// settings, writes one of results.
//
//   open   calls that come when they come, whatever becomes of those before, as of many clients that do not know each other
//   closed so many clients that each wait for their answer, for so long
//   flood  so many requests at once, each on a connection of its own; begun by a second line, given up when the input ends
import { once, setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { createInterface } from 'node:readline';

const small = Buffer.from(JSON.stringify({ inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', data: [1] }] }));
const warmMs = 500;
const lines = createInterface({ input: process.stdin });
const ended = once(lines, 'close');
const [line] = await once(lines, 'line');
const order = JSON.parse(line);
const results = await { open, closed, flood }[order.kind](order);
process.stdout.write(`${JSON.stringify(results)}\n`, () => process.exit(0));

/**
 * One answer for each arrival. A latency counts from the instant at which the call was to be sent: a client that lags
 * makes its answers later, never earlier.
 */
async function open({ url, names, arrivals }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 2000 });
  // Code that has not run before lags by some tenths of a second. The host answers these with 404, and keeps their connections.
  await closed({ url, name: '-', clients: 8, forMs: warmMs }, agent);
  const answers = [];
  const startMs = performance.now();
  for (const { index, atMs } of arrivals) {
    const waitMs = atMs - (performance.now() - startMs);
    if (waitMs > 1) await new Promise((resolve) => setTimeout(resolve, waitMs));
    const one = async () => {
      const status = await call(agent, url, names[index]);
      return { index, status, atMs, latencyMs: performance.now() - startMs - atMs };
    };
    answers.push(one());
  }
  return await Promise.all(answers);
}

/** Answers in a second. */
async function closed({ url, name, clients, forMs }, agent = new Agent({ keepAlive: true, maxSockets: clients })) {
  let answered = 0;
  const startMs = performance.now();
  const client = async () => {
    while (performance.now() - startMs < forMs) if ((await call(agent, url, name)) === 200) answered++;
  };
  await Promise.all(Array.from({ length: clients }, client));
  return (answered / (performance.now() - startMs)) * 1000;
}

/** Replies by status; 0: none by the end. */
async function flood({ url, path, headers, bodyFile, count }) {
  const body = readFileSync(bodyFile);
  process.stdout.write('ready\n');
  await once(lines, 'line');
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  void ended.then(() => stop.abort());
  const one = () => post(`${url}${path}`, new Agent({ maxSockets: 1 }), headers, body, stop.signal);
  const statuses = {};
  for (const status of await Promise.all(Array.from({ length: count }, one))) {
    statuses[status] = (statuses[status] ?? 0) + 1;
  }
  return statuses;
}

function call(agent, url, name) {
  return post(`${url}/v2/models/${name}/infer`, agent, {}, small);
}

/** Gives the status; 0 where there was no answer. */
function post(url, agent, headers, body, signal) {
  return new Promise((resolve) => {
    const all = { 'Content-Type': 'application/json', 'Content-Length': body.byteLength, ...headers };
    const request = httpRequest(url, { method: 'POST', agent, headers: all, signal }, (response) => {
      response.resume();
      response.on('close', () => resolve(response.statusCode ?? 0));
    });
    request.on('error', () => resolve(0));
    request.end(body);
  });
}
