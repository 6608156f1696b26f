/**
 * A certificate, its key and perhaps a CA in files that may be renewed while the host runs: they are read again every ten
 * seconds. New connections take the new ones; files that do not fit together, as while they are written, change nothing.
 */
import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { MemberPems } from '../../fleet/index.ts';
import type { HostConfig } from './config.ts';
import { ConfigError } from './config-error.ts';
import { fileOf } from './config-file.ts';

/** Files by the option that names each. */
export interface CertificatePaths {
  readonly section: 'listen' | 'fleet';
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile?: string | undefined;
}

/** When a certificate ends, and which option names its file. */
export interface CertificateEnd {
  readonly option: string;
  readonly endMs: number;
}

const lookMs = 10_000;
const pemBlocks = /-----BEGIN CERTIFICATE-----[^]+?-----END CERTIFICATE-----/g;

export class CertificateFiles {
  readonly #paths: CertificatePaths;
  readonly #listeners = new Set<() => void>();
  readonly #timer: NodeJS.Timeout;
  #pems: MemberPems;
  #ends: readonly CertificateEnd[];
  #warned: string | undefined;

  /** @param warn gets why changed files are not used @throws ConfigError */
  constructor(paths: CertificatePaths, warn: (reason: string) => void) {
    this.#paths = paths;
    this.#pems = this.#read();
    this.#ends = this.#endsOf(this.#pems);
    this.#timer = setInterval(() => this.look(warn), lookMs).unref();
  }

  /** `ca` is empty where no file holds one. */
  get pems(): MemberPems {
    return this.#pems;
  }

  /** Of each file's certificates the one that ends first. */
  get ends(): readonly CertificateEnd[] {
    return this.#ends;
  }

  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  look(warn: (reason: string) => void): void {
    try {
      const pems = this.#read();
      this.#warned = undefined;
      if (JSON.stringify(pems) === JSON.stringify(this.#pems)) return;
      this.#ends = this.#endsOf(pems);
      this.#pems = pems;
      for (const listener of this.#listeners) listener();
    } catch (error) {
      const { message } = error as Error;
      if (message !== this.#warned) warn(message);
      this.#warned = message;
    }
  }

  #read(): MemberPems {
    const { section, certFile, keyFile, caFile } = this.#paths;
    const [cert, key] = [fileOf(`${section}.tlsCert`, certFile), fileOf(`${section}.tlsKey`, keyFile)].map(String);
    const ca = caFile === undefined ? '' : fileOf(`${section}.tlsCa`, caFile).toString();
    if (caFile !== undefined && ca.match(pemBlocks) === null) {
      throw new ConfigError(`"${section}.tlsCa": ${caFile} holds no certificate in PEM form`);
    }
    try {
      createSecureContext({ cert, key, ...(caFile === undefined ? {} : { ca }) });
    } catch (error) {
      const both = `"${section}.tlsCert" and "${section}.tlsKey"`;
      throw new ConfigError(`${both} are not a PEM certificate and its key: ${(error as Error).message}`);
    }
    return { cert: cert!, key: key!, ca };
  }

  #endsOf({ cert, ca }: MemberPems): readonly CertificateEnd[] {
    const { section } = this.#paths;
    const files = [
      [`${section}.tlsCert`, cert],
      [`${section}.tlsCa`, ca],
    ] as const;
    return files.flatMap(([option, text]) => {
      const endsMs = (text.match(pemBlocks) ?? []).map((pem) => Date.parse(new X509Certificate(pem).validTo));
      return endsMs.length === 0 ? [] : [{ option, endMs: Math.min(...endsMs) }];
    });
  }
}

/** Of both certificates that a host may have: that for its clients, and that of its fleet. */
function certificatePathsOf({ listen, fleet }: Pick<HostConfig, 'listen' | 'fleet'>): CertificatePaths[] {
  return [
    { section: 'listen' as const, ...listen.tls, caFile: undefined },
    { section: 'fleet' as const, ...fleet.tls },
  ].flatMap(({ section, certFile, keyFile, caFile }) =>
    certFile === undefined || keyFile === undefined ? [] : [{ section, certFile, keyFile, caFile }],
  );
}

/** When the configured certificates end. @throws ConfigError if one cannot be used */
export function readCertificateEnds(config: Pick<HostConfig, 'listen' | 'fleet'>): CertificateEnd[] {
  return certificatePathsOf(config).flatMap((paths) => {
    const files = new CertificateFiles(paths, () => undefined);
    files.close();
    return files.ends;
  });
}

/** Undefined: without TLS there. @throws ConfigError if its files cannot be used */
export function certificateFilesOf(
  config: Pick<HostConfig, 'listen' | 'fleet'>,
  section: CertificatePaths['section'],
  warn: (reason: string) => void,
): CertificateFiles | undefined {
  const paths = certificatePathsOf(config).find((each) => each.section === section);
  return paths && new CertificateFiles(paths, warn);
}
