/**
 * Which addresses a callback may be sent to. The client chooses the URL, and the host is inside a network that the
 * client may not reach itself: without a rule, a callback could talk to a metadata service, to Redis, or to another
 * service on this machine. Private, loopback and link-local addresses are therefore refused unless the operator lists
 * them.
 */
import { lookup as resolveName, type LookupAddress } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { inNetworks, isNetwork } from '../tools/index.ts';

/**
 * Ports of other protocols, which `fetch` refuses (https://fetch.spec.whatwg.org/#port-blocking): otherwise a client
 * could make a host talk to a mail server.
 */
const blockedPorts: ReadonlySet<number> = new Set([
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
  111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
  540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
  6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10_080,
]);

/**
 * Addresses of this machine or its own network, and those that no server on the internet has: IANA's special-purpose
 * registries (RFC 6890 and successors), ways in which IPv6 holds an address of IPv4, and the agent of Azure's machines,
 * which is public by number only.
 */
const privateNetworks = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '168.63.129.16/32',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '::/96',
  '::ffff:0:0:0/96',
  '64:ff9b::/96',
  '64:ff9b:1::/48',
  '100::/64',
  '100:0:0:1::/64',
  '2001::/23',
  '2001:db8::/32',
  '2002::/16',
  '3fff::/20',
  '5f00::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
];

/** Why an entry is not allowed in the allow-list; undefined if it is. */
export function callbackAllowProblem(entry: string): string | undefined {
  if (isNetwork(entry)) return undefined;
  if (/^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/i.test(entry) && !/^[\d.]+$/.test(entry)) return undefined;
  return (
    `'${entry}' is neither a host name ('receiver.internal', '*.internal') nor an address or network ` +
    "('10.1.0.0/16')"
  );
}

export class CallbackTargets {
  readonly #isAllowed: (address: string) => boolean;
  readonly #isPrivate = inNetworks(privateNetworks);
  /** Lower case; a name that starts with '.' allows every name below it. */
  readonly #names: readonly string[];
  readonly #resolve: typeof resolveName;

  /** @param allow host names, addresses and networks that may be called although they are private */
  constructor(allow: readonly string[], resolve: typeof resolveName = resolveName) {
    this.#isAllowed = inNetworks(allow.filter(isNetwork));
    this.#names = allow.filter((entry) => !isNetwork(entry)).map((name) => name.toLowerCase().replace(/^\*/, ''));
    this.#resolve = resolve;
  }

  /**
   * An address that a reply may be sent to, or why not, to follow "the header X-Callback-Url is". A name is resolved
   * when the reply is sent (see `lookup`). Redirects are not followed, so the checked address is the one that is
   * called.
   */
  check(text: string): { readonly url: string } | { readonly reason: string } {
    if (text.length > 2000) return { reason: 'longer than 2000 characters' };
    // Two headers of the name come as one, with a comma and a blank between them.
    if (/\s/.test(text) || !URL.canParse(text)) return { reason: 'not a URL' };
    const { protocol, port, href, username, password, hostname } = new URL(text);
    if (protocol !== 'http:' && protocol !== 'https:') return { reason: 'not an http or https URL' };
    if (username !== '' || password !== '') {
      return {
        reason: 'a URL with a user or password, which replies to others would then carry; sign callbacks instead',
      };
    }
    if (port !== '' && blockedPorts.has(Number(port)))
      return { reason: `of port ${port}, which belongs to another protocol` };
    const host = hostOf(hostname);
    const isLocalName = host === 'localhost' || host.endsWith('.localhost');
    const isRefused = isIP(host) === 0 ? isLocalName && !this.#allowsName(host) : this.#refuses(host);
    if (isRefused) {
      return { reason: `of the private address ${host}, which the setting async.callbackAllow does not list` };
    }
    return { url: href };
  }

  /** Resolves the receiver's name once, and gives the connection only allowed addresses. */
  readonly lookup: LookupFunction = (hostname, options, callback) => {
    this.#resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) {
        callback(error, '', 0);
        return;
      }
      const allowed = this.#allowsName(hostOf(hostname))
        ? addresses
        : addresses.filter(({ address }) => !this.#refuses(address));
      const [first] = allowed;
      if (first === undefined) callback(this.#refusal(hostname, addresses), '', 0);
      else if (options.all === true) callback(null, allowed);
      else callback(null, first.address, first.family);
    });
  };

  #refusal(hostname: string, addresses: readonly LookupAddress[]): Error {
    const found = addresses.map(({ address }) => address).join(', ');
    return new Error(
      `'${hostname}' is the private address ${found}, which the setting async.callbackAllow does not list`,
    );
  }

  #allowsName(host: string): boolean {
    return this.#names.some((name) => (name.startsWith('.') ? host.endsWith(name) : host === name));
  }

  #refuses(address: string): boolean {
    return this.#isPrivate(address) && !this.#isAllowed(address);
  }
}

/** Without the brackets of IPv6, and without the root's dot. */
const hostOf = (hostname: string): string =>
  hostname
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '')
    .toLowerCase();
