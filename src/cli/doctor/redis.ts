import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { RedisFacts } from './facts.ts';

/**
 * Asks a Redis server for PING and its version in RESP, Redis' own protocol, over a bare socket. Never throws. The
 * password of the URL does not appear in what it gives back.
 */
export async function askRedis(url: string, timeoutMs: number): Promise<RedisFacts> {
  const target = URL.canParse(url) ? new URL(url) : undefined;
  const address = target === undefined ? 'an address that is no URL' : addressOf(target);
  if (target === undefined) return { state: 'silent', address, reason: 'redis.url is not a URL' };
  const password = decodeURIComponent(target.password);
  const user = decodeURIComponent(target.username);
  const commands = [['PING'], ['INFO', 'server']];
  if (password !== '') commands.unshift(user === '' ? ['AUTH', password] : ['AUTH', user, password]);
  const startedMs = performance.now();
  try {
    const replies = await exchange(target, commands, timeoutMs);
    const pingMs = performance.now() - startedMs;
    const refused = replies.find((reply) => reply.startsWith('-'));
    if (refused !== undefined) return { state: 'locked', address, reason: refused.slice(1) };
    const version = /^redis_version:(\S+)/m.exec(replies.at(-1) ?? '')?.[1];
    return { state: 'answers', address, version, pingMs };
  } catch (error) {
    return { state: 'silent', address, reason: (error as Error).message };
  }
}

function addressOf(target: URL): string {
  return target.protocol === 'unix:' ? target.pathname : `${target.hostname}:${target.port || '6379'}`;
}

async function exchange(target: URL, commands: readonly (readonly string[])[], timeoutMs: number): Promise<string[]> {
  const socket = open(target);
  return await new Promise<string[]>((resolve, reject) => {
    let received = '';
    const timer = setTimeout(() => end(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    const end = (error: Error | undefined, replies: string[] = []): void => {
      clearTimeout(timer);
      socket.destroy();
      if (error === undefined) resolve(replies);
      else reject(error);
    };
    socket.setEncoding('latin1');
    socket.once('error', end);
    socket.once('close', () => end(new Error('the connection was closed')));
    socket.on('data', (chunk: string) => {
      received += chunk;
      const replies = splitReplies(received);
      if (replies === undefined) return end(new Error('what answers does not speak the protocol of Redis'));
      // An error ends the exchange early: what follows would only repeat it.
      if (replies.length === commands.length || replies.some((reply) => reply.startsWith('-'))) end(undefined, replies);
    });
    socket.write(commands.map(encode).join(''));
  });
}

function open(target: URL): Socket {
  if (target.protocol === 'unix:') return connectTcp(target.pathname);
  const port = Number(target.port || 6379);
  const host = target.hostname.replace(/^\[(.*)\]$/, '$1');
  return target.protocol === 'rediss:' ? connectTls({ host, port, servername: host }) : connectTcp({ host, port });
}

function encode(words: readonly string[]): string {
  const bulk = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  return `*${words.length}\r\n${bulk.join('')}`;
}

/** The whole replies at the front, as text with their type character; undefined when it is not RESP. */
function splitReplies(received: string): string[] | undefined {
  const replies: string[] = [];
  let at = 0;
  while (at < received.length) {
    const lineEnd = received.indexOf('\r\n', at);
    if (!'+-$:'.includes(received.charAt(at))) return undefined;
    if (lineEnd < 0) break;
    const line = received.slice(at, lineEnd);
    if (!line.startsWith('$')) {
      replies.push(line);
      at = lineEnd + 2;
      continue;
    }
    const end = lineEnd + 2 + Math.max(0, Number(line.slice(1)));
    if (Number.isNaN(end)) return undefined;
    if (received.length < end + 2) break;
    replies.push(received.slice(lineEnd + 2, end));
    at = end + 2;
  }
  return replies;
}
