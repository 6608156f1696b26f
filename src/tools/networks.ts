/** Addresses and networks of IP, as configurations list them: `10.1.2.3`, `10.1.0.0/16`, `fd00::/8`. */
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';

/** Whether it is an address, or a network such as `10.1.0.0/16`. */
export function isNetwork(entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/');
  if (isIP(address) === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (isIPv4(address) ? 32 : 128));
}

/** Whether an address is in one of the networks. An IPv4 address in IPv6 (`::ffff:10.1.2.3`) is the IPv4 address. */
export function inNetworks(entries: Iterable<string>): (address: string) => boolean {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/');
    list.addSubnet(address, Number(bits ?? (isIPv4(address) ? 32 : 128)), familyOf(address));
  }
  return (address) => {
    const bare = bareAddress(address);
    return isIP(bare) !== 0 && list.check(bare, familyOf(bare));
  };
}

/** The address itself of IPv4, and the first 64 bits of IPv6: one customer of such a network has 2^64 addresses. */
export function networkOf(address: string): string {
  const bare = bareAddress(address);
  return isIPv6(bare) ? `${expanded(bare).slice(0, 4).join(':')}::/64` : bare;
}

const familyOf = (address: string): 'ipv4' | 'ipv6' => (isIPv4(address) ? 'ipv4' : 'ipv6');

const bareAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '');

function expanded(address: string): string[] {
  const [head = '', tail] = address.split('::');
  const [before, after] = [groups(head), groups(tail ?? '')];
  return [...before, ...Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => '0'), ...after];
}

/** In one notation: without zeros in front, and in lower case. */
const groups = (text: string): string[] =>
  text === '' ? [] : text.split(':').map((group) => group.toLowerCase().replace(/^0+(?=.)/, ''));
