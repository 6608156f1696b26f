// The yardstick for isolation: node:http, and the model in one child, to and from which the floats go over a socket.
// The same file is the child, where it is given a descriptor. `BUSY_US` keeps the child's core and cache busy for so many
// microseconds more a run: a child that computes longer costs its parent more, whose cache it shares.
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { answerWith, bytesOf, openModel } from './model.mjs';

const [, , model, descriptor] = process.argv;
const prefixBytes = 4;
const busyUs = Number(process.env.BUSY_US ?? 0);

/** Frames of floats: their bytes, as 32 bits, and they themselves. */
function readFrames(socket, take) {
  let chunks = [];
  let bytes = 0;
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    bytes += chunk.byteLength;
    while (bytes >= prefixBytes) {
      if (chunks[0].byteLength < prefixBytes) chunks = [Buffer.concat(chunks)];
      const end = prefixBytes + chunks[0].readUInt32LE(0);
      if (bytes < end) return;
      const whole = Buffer.concat(chunks);
      take(new Float32Array(whole.buffer.slice(whole.byteOffset + prefixBytes, whole.byteOffset + end)));
      chunks = [whole.subarray(end)];
      bytes -= end;
    }
  });
}

function writeFrame(socket, values) {
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32LE(values.byteLength, 0);
  socket.cork();
  socket.write(prefix);
  socket.write(bytesOf(values));
  socket.uncork();
}

/** Reads and writes 1 MiB again and again, as a computation over weights does. */
function stayBusy() {
  const untilMs = performance.now() + busyUs / 1000;
  while (performance.now() < untilMs) for (let at = 0; at < touched.length; at += 16) touched[at] += at;
}
const touched = new Float32Array(busyUs > 0 ? 2 ** 18 : 0);

if (descriptor === undefined) {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), model, '3'], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  const [, , , socket] = child.stdio;
  const waiting = [];
  let isReady;
  const ready = new Promise((resolve) => (isReady = resolve));
  // The first frame says that the model is there.
  readFrames(socket, (values) =>
    isReady === undefined ? waiting.shift()(values) : (isReady(), (isReady = undefined)),
  );
  const run = (values) =>
    new Promise((resolve) => {
      waiting.push(resolve);
      writeFrame(socket, values);
    });
  await ready;
  const server = createServer(answerWith(run));
  server.listen(0, '127.0.0.1', () => process.stdout.write(`http://127.0.0.1:${server.address().port}\n`));
} else {
  const run = await openModel(model);
  const socket = new Socket({ fd: Number(descriptor), readable: true, writable: true });
  socket.on('close', () => process.exit());
  let last = Promise.resolve();
  const runBusy = async (values) => {
    const outputs = await run(values);
    stayBusy();
    writeFrame(socket, outputs);
  };
  readFrames(socket, (values) => (last = last.then(() => runBusy(values))));
  writeFrame(socket, new Float32Array());
}
