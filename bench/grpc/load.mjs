// A load generator in its own process. Reads one JSON line of settings, writes one JSON line of results. It sends one
// ready-made message over and over and does not decode the replies, so it takes little of the cores it shares.
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Client, credentials } from '@grpc/grpc-js';

const [line] = await once(createInterface({ input: process.stdin }), 'line');
const { address, messageBase64, streams, requests } = JSON.parse(line);
const message = Buffer.from(messageBase64, 'base64');
const client = new Client(address, credentials.createInsecure());
const same = (bytes) => bytes;
const latenciesMs = [];
const statuses = {};
let begun = 0;

const one = () =>
  new Promise((resolve) => {
    const startMs = performance.now();
    client.makeUnaryRequest('/inference.GRPCInferenceService/ModelInfer', same, same, message, (error) => {
      const status = error === null ? 0 : error.code;
      statuses[status] = (statuses[status] ?? 0) + 1;
      latenciesMs.push(performance.now() - startMs);
      resolve();
    });
  });
const run = async () => {
  while (begun < requests) {
    begun++;
    await one();
  }
};
const startMs = performance.now();
await Promise.all(Array.from({ length: streams }, run));
const tookMs = performance.now() - startMs;
client.close();
latenciesMs.sort((a, b) => a - b);
const at = (share) => latenciesMs[Math.min(latenciesMs.length - 1, Math.floor(latenciesMs.length * share))];
const result = { statuses, perSecond: (requests / tookMs) * 1000, p50Ms: at(0.5), p99Ms: at(0.99) };
process.stdout.write(`${JSON.stringify(result)}\n`);
