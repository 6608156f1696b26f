/** GPU processes for the tests of a file. A start takes a second of a core, so most tests use one and the same. */
import { startGpuProcess, type GpuClient, type GpuProcessOptions } from '../../src/gpu/index.ts';

export class GpuProcesses {
  readonly #options: () => GpuProcessOptions;
  #usual: GpuClient | undefined;

  /** @param options called when a process starts */
  constructor(options: () => GpuProcessOptions) {
    this.#options = options;
  }

  /** @param change starts a process with these options, for this test alone */
  async use(test: (client: GpuClient) => Promise<void>, change?: Partial<GpuProcessOptions>): Promise<void> {
    const isUsual = change === undefined;
    const client = (isUsual ? this.#usual : undefined) ?? startGpuProcess({ ...this.#options(), ...change });
    if (isUsual) this.#usual = client;
    let isWell = false;
    try {
      await client.ready;
      await test(client);
      for (const { key } of isUsual ? (await client.state()).host.functions : []) await client.unregister(key);
      isWell = true;
    } finally {
      if (!isUsual || !isWell) await client.stop();
      if (isUsual && !isWell) this.#usual = undefined;
    }
  }

  async stop(): Promise<void> {
    await this.#usual?.stop();
  }
}
