// Clients in a process of their own: one client's work must not delay another's measurements. Reads one JSON line of
// settings, writes one of results.
//
//   open   calls at given times, whatever the state of earlier ones, like many independent clients
//   closed a number of clients that each wait for their answer, for a given time
//   flood  a number of requests at once, each on its own connection; a second line starts it, the end of input cancels it
import { once, setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { createInterface } from 'node:readline';

const small = Buffer.from(JSON.stringify({ inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', data: [1] }] }));
const lines = createInterface({ input: process.stdin });
const ended = once(lines, 'close');
const [line] = await once(lines, 'line');
const order = JSON.parse(line);
const results = await { open, closed, flood }[order.kind](order);
process.stdout.write(`${JSON.stringify(results)}\n`, () => process.exit(0));

/**
 * One answer for each arrival. A latency counts from the planned time of the call: a slow client makes its answers
 * later, never earlier.
 */
async function open({ url, names, arrivals, warmMs }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 2000 });
  // Cold code would lag by some tenths of a second. The host answers these calls with 404, and keeps their connections.
  await closed({ url, name: '-', clients: 8, forMs: warmMs }, agent);
  const answers = [];
  const startMs = performance.now();
  for (const { functionIndex, arrivalMs } of arrivals) {
    const waitMs = arrivalMs - (performance.now() - startMs);
    if (waitMs > 1) await new Promise((resolve) => setTimeout(resolve, waitMs));
    const one = async () => {
      const status = await call(agent, url, names[functionIndex]);
      return { status, arrivalMs, latencyMs: performance.now() - startMs - arrivalMs };
    };
    answers.push(one());
  }
  return await Promise.all(answers);
}

/** Answers a second. */
async function closed({ url, name, clients, forMs }, agent = new Agent({ keepAlive: true, maxSockets: clients })) {
  let answered = 0;
  const startMs = performance.now();
  const client = async () => {
    while (performance.now() - startMs < forMs) if ((await call(agent, url, name)) === 200) answered++;
  };
  await Promise.all(Array.from({ length: clients }, client));
  return (answered / (performance.now() - startMs)) * 1000;
}

/** Replies by status; 0: no reply by the end. */
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

/** Resolves to the status; 0 without an answer. */
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
