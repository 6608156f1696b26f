/** Makes a fleet's CA and the certificates of its hosts, as files in one folder. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { readTextIfThere } from '../tools/index.ts';
import { CliError, tellingOf } from './error.ts';

export interface MemberCertificateOptions {
  /** Where the CA is, which is made if it is missing, and where the certificate goes. */
  readonly folder: string;
  /** Host names and addresses that the certificate is for; files have the first one. */
  readonly names: readonly [string, ...string[]];
  readonly days: number;
}

const dayMs = 86_400_000;
const caDays = 3650;
/** Clocks of machines differ. */
const beforeMs = 3_600_000;

/** Paths of the files. */
export async function makeMemberCertificate({ folder, names, days }: MemberCertificateOptions) {
  const [name] = names;
  await mkdir(folder, { recursive: true });
  const files = {
    cert: join(folder, `${name}.pem`),
    key: join(folder, `${name}.key`),
    ca: join(folder, 'ca.pem'),
  };
  const ca = await authorityIn(folder);
  const keys = newKeys();
  const certificate = await signed({
    subject: name,
    keys,
    days,
    extensions: [
      { name: 'basicConstraints', cA: false, critical: true },
      { name: 'keyUsage', digitalSignature: true, keyEncipherment: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true, clientAuth: true },
      { name: 'subjectAltName', altNames: names.map((each) => (isIP(each) === 0 ? dns(each) : address(each))) },
    ],
    by: ca,
  });
  await writeFile(files.key, keys.privateKey, { mode: 0o600 });
  await writeFile(files.cert, certificate);
  return { ...files, isNewCa: ca.isNew };
}

const dns = (value: string) => ({ type: 2, value });
const address = (ip: string) => ({ type: 7, ip });

interface Authority {
  readonly cert: string;
  readonly key: string;
  readonly isNew: boolean;
}

async function authorityIn(folder: string): Promise<Authority> {
  const [certFile, keyFile] = [join(folder, 'ca.pem'), join(folder, 'ca.key')];
  const [cert, key] = await tellingOf('the CA cannot be read', [], () =>
    Promise.all([certFile, keyFile].map(readTextIfThere)),
  );
  if (cert !== undefined && key !== undefined) return { cert, key, isNew: false };
  if (cert !== undefined || key !== undefined) {
    const [there, missing] = cert === undefined ? [keyFile, certFile] : [certFile, keyFile];
    throw new CliError(`${there} is there without ${missing}: a CA needs both, and a new one takes an empty folder`);
  }
  const keys = newKeys();
  const own = await signed({
    subject: `Turntable fleet ${randomBytes(4).toString('hex')}`,
    keys,
    days: caDays,
    extensions: [
      { name: 'basicConstraints', cA: true, pathLenConstraint: 0, critical: true },
      { name: 'keyUsage', keyCertSign: true, cRLSign: true, critical: true },
    ],
  });
  // The exclusive flag: a CA that another call has just made stays.
  await writeFile(keyFile, keys.privateKey, { mode: 0o600, flag: 'wx' });
  await writeFile(certFile, own, { flag: 'wx' });
  return { cert: own, key: keys.privateKey, isNew: true };
}

interface Signing {
  readonly subject: string;
  readonly keys: Keys;
  readonly days: number;
  readonly extensions: readonly { readonly name: string; readonly [field: string]: unknown }[];
  /** Default: itself. */
  readonly by?: Authority;
}

/** The certificate as PEM. */
async function signed({ subject, keys, days, extensions, by }: Signing): Promise<string> {
  const { default: forge } = await import('node-forge');
  const { pki, md } = forge;
  const certificate = pki.createCertificate();
  certificate.publicKey = pki.publicKeyFromPem(keys.publicKey);
  // Positive, as RFC 5280 wants it.
  certificate.serialNumber = `01${randomBytes(15).toString('hex')}`;
  const nowMs = Date.now();
  certificate.validity.notBefore = new Date(nowMs - beforeMs);
  certificate.validity.notAfter = new Date(nowMs + days * dayMs);
  const name = [{ name: 'commonName', value: subject.slice(0, 64) }];
  certificate.setSubject(name);
  certificate.setIssuer(by === undefined ? name : pki.certificateFromPem(by.cert).subject.attributes);
  certificate.setExtensions(extensions);
  certificate.sign(pki.privateKeyFromPem(by?.key ?? keys.privateKey), md.sha256.create());
  return pki.certificateToPem(certificate).replaceAll('\r\n', '\n');
}

type Keys = ReturnType<typeof newKeys>;

/** PEM texts. The package signs with keys of RSA alone. */
const newKeys = () =>
  generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
