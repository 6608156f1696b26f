/**
 * Both ends of a connection between members: mutual TLS with the fleet's own CA, or plain TCP where nothing but this
 * machine can reach it.
 */
import { connect as connectPlain, createServer as createPlainServer, isIP, type Server, type Socket } from 'node:net';
import {
  checkServerIdentity,
  connect,
  createServer,
  type DetailedPeerCertificate,
  type PeerCertificate,
  type TLSSocket,
} from 'node:tls';

/** PEM texts. */
export interface MemberPems {
  readonly cert: string;
  readonly key: string;
  /** The fleet's CA: it must have signed the other end's certificate. */
  readonly ca: string;
}

/** A member's certificate, which may be renewed at any time: a new connection takes the one of its time. */
export interface MemberTls {
  readonly pems: MemberPems;
  /** The name that every member's certificate has; undefined: each has its member's own host name or address. */
  readonly name: string | undefined;
  /** Calls the listener when `pems` has changed. */
  onChange(listener: () => void): void;
}

const handshakeMs = 10_000;

/** Whether it is a host and a port: `10.0.0.5:8002`, `[::1]:8002`. */
export function isMemberName(text: string): boolean {
  if (!URL.canParse(`tcp://${text}`)) return false;
  const { host, port } = new URL(`tcp://${text}`);
  return port !== '' && host === text.toLowerCase();
}

/** The host and the port in a member's name. */
export function placeOf(member: string): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(`tcp://${member}`);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port) };
}

/** Why a certificate is not that of the member; undefined: it is. */
function whyNotOf(tls: MemberTls, member: string, certificate: PeerCertificate): Error | undefined {
  return checkServerIdentity(tls.name ?? placeOf(member).host, certificate);
}

export function connectTo(member: string, tls: MemberTls | undefined): Socket {
  const place = placeOf(member);
  if (tls === undefined) return connectPlain(place);
  return connect({
    ...place,
    ...tls.pems,
    minVersion: 'TLSv1.3',
    ...(isIP(place.host) === 0 ? { servername: place.host } : {}),
    checkServerIdentity: (_host, certificate) => whyNotOf(tls, member, certificate),
  });
}

/** @param accept gets a connection after its handshake */
export function listenerFor(tls: MemberTls | undefined, accept: (socket: Socket) => void): Server {
  if (tls === undefined) return createPlainServer(accept);
  const server = createServer({
    ...tls.pems,
    minVersion: 'TLSv1.3',
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: handshakeMs,
  });
  // Connections that are open go on; a file that cannot be used never gets here.
  tls.onChange(() => server.setSecureContext({ ...tls.pems, minVersion: 'TLSv1.3' }));
  server.on('secureConnection', accept);
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  return server;
}

/** Why the other end of a connection is not the member that it says it is; undefined: it is, or there is no TLS. */
export function whyNotFrom(tls: MemberTls | undefined, socket: Socket, member: string): string | undefined {
  if (tls === undefined) return undefined;
  if (!isMemberName(member)) return 'it does not say which member it is';
  const certificate: DetailedPeerCertificate = (socket as TLSSocket).getPeerCertificate(true);
  return whyNotOf(tls, member, certificate)?.message;
}

/** Node's error codes for a certificate with an unknown signer. */
const untrusted: ReadonlySet<string> = new Set([
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'CERT_SIGNATURE_FAILURE',
]);

/** What a failed connection means, in words of the fleet. */
export function connectionTrouble(error: unknown): string {
  const { code = '', message, reason } = error as NodeJS.ErrnoException & { readonly reason?: string };
  const words = message || code || String(error);
  if (untrusted.has(code)) return `its certificate is not signed by the CA in "fleet.tlsCa" (${words})`;
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') return `its certificate names another member: ${reason ?? words}`;
  if (code === 'CERT_HAS_EXPIRED') return 'its certificate has ended';
  if (/^ERR_SSL_.*_ALERT_/.test(code)) return `it does not take this host's certificate (${words})`;
  if (code === 'EPROTO' || code.startsWith('ERR_SSL_')) return `it does not speak TLS as this host does (${words})`;
  return words;
}
