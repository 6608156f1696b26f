/** A test's own Redis server, on a socket in a temporary folder; it can be killed and started again. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Over TLS on a port of loopback, beside the socket. Clients need no certificate. */
export interface RedisTls {
  readonly port: number;
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** Why tests that need Redis are skipped here; undefined if it is installed. */
export const redisMissing: string | undefined =
  spawnSync('redis-server', ['--version']).status === 0
    ? undefined
    : 'redis-server is not installed (apt install redis-server)';

if (redisMissing !== undefined) console.warn(`left out: tests with Redis, because ${redisMissing}`);

export class RedisServer implements AsyncDisposable {
  readonly folder: string;
  readonly #words: readonly string[];
  #child: ChildProcess | undefined;

  private constructor(folder: string, words: readonly string[]) {
    this.folder = folder;
    this.#words = words;
  }

  static async start({
    durable = false,
    tls,
  }: { readonly durable?: boolean; readonly tls?: RedisTls } = {}): Promise<RedisServer> {
    const words = ['--appendonly', durable ? 'yes' : 'no', ...(tls === undefined ? [] : tlsWords(tls))];
    const server = new RedisServer(await mkdtemp(join(tmpdir(), 'turntable-redis-')), words);
    await server.start();
    return server;
  }

  get url(): string {
    return `unix://${this.socket}`;
  }

  get socket(): string {
    return join(this.folder, 'redis.sock');
  }

  async start(): Promise<void> {
    const child = spawn(
      'redis-server',
      [
        '--port',
        '0',
        '--unixsocket',
        this.socket,
        '--dir',
        this.folder,
        '--save',
        '',
        '--appendfsync',
        'always',
        ...this.#words,
      ],
      { stdio: 'ignore' },
    );
    this.#child = child;
    for (;;) {
      if (child.exitCode !== null) throw new Error(`redis-server ended with exit code ${child.exitCode}`);
      if (await this.#answers()) return;
      await delay(10); // A socket that begins to listen emits no event.
    }
  }

  /** SIGKILL, like a crash; with `durable`, acknowledged data is there again after {@link start}. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  /** SIGSTOP or SIGCONT, say. */
  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  /** The first line of the answer to an inline command, such as `FLUSHALL`; undefined without an answer. */
  async command(text: string): Promise<string | undefined> {
    return await new Promise((resolve) => {
      const socket = connect(this.socket);
      socket.setEncoding('latin1');
      socket.once('error', () => resolve(undefined));
      socket.once('close', () => resolve(undefined));
      socket.once('data', (reply: string) => {
        socket.destroy();
        resolve(reply.split('\r\n', 1)[0]);
      });
      socket.write(`${text}\r\n`);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Whether it answers, and is not still reading its files. */
  async #answers(): Promise<boolean> {
    return (await this.command('PING')) === '+PONG';
  }
}

const tlsWords = ({ port, cert, key, ca }: RedisTls): string[] =>
  `--tls-port ${port} --tls-cert-file ${cert} --tls-key-file ${key} --tls-ca-cert-file ${ca} --tls-auth-clients no`.split(
    ' ',
  );
