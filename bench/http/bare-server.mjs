// The yardstick: the most that node:http can do when it reads a body and returns it.
import { createServer } from 'node:http';

const server = createServer((incoming, outgoing) => {
  const chunks = [];
  incoming.on('data', (chunk) => chunks.push(chunk));
  incoming.on('end', () => {
    const body = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
    outgoing.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': body.byteLength });
    outgoing.end(body);
  });
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`http://127.0.0.1:${server.address().port}\n`));
