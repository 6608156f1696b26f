import { isIP } from 'node:net';
import { text } from 'node:stream/consumers';
import { Command, type AnyCommand } from './commander.ts';
import { apiKeyEntry, newApiKey, scopes } from '../host/index.ts';
import { spoken, usage } from './error.ts';
import { makeMemberCertificate } from './member-certificate.ts';
import { parseCount } from './values.ts';

export function keyCommand(): AnyCommand {
  return new Command('key')
    .description(
      'Make an API key, and the entry of "apiKeys" (or TURNTABLE_API_KEYS) that lets it in. The key is printed once; ' +
        'the entry holds its hash only. With --tls: make the certificate of a host of a fleet.',
    )
    .argument(
      '<name>',
      'who it is for; the log has this name. With --tls: the host, or several names of it with commas',
    )
    .option('--scopes <list>', `what it allows, of ${scopes.join(', ')}`, 'invoke,read')
    .option('--from-stdin', 'make the entry for a key that is read from standard input')
    .option('--tls <folder>', "sign a certificate with the fleet's CA in the folder, which is made if it is not there")
    .option('--days <number>', 'how long the certificate is good', parseCount, 365)
    .option('--json', 'print JSON')
    .action(async (name, options) => {
      if (options.tls !== undefined) {
        const files = await makeMemberCertificate({ folder: options.tls, names: namesIn(name), days: options.days });
        console.log(options.json === true ? JSON.stringify(files, null, 2) : certificateText(files));
        return;
      }
      const key = options.fromStdin === true ? (await text(process.stdin)).trim() : newApiKey();
      if (!/^[!-+\--~]{8,}$/.test(key)) {
        throw usage('the key on standard input has less than 8 characters, or spaces, commas or control characters');
      }
      const granted = options.scopes.split(/[,+]/).map((scope) => scope.trim());
      const entry = spoken([RangeError], () => apiKeyEntry(name, granted, key));
      if (options.json === true) console.log(JSON.stringify({ name, scopes: granted, key, entry }, null, 2));
      else if (options.fromStdin === true) console.log(entry);
      else console.log(`key:   ${key}\nentry: ${entry}`);
    });
}

function namesIn(list: string): [string, ...string[]] {
  const names = list.split(',').map((name) => name.trim());
  for (const name of names) {
    if (isIP(name) === 0 && !/^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/i.test(name)) {
      throw usage(`'${name}' is neither a host name nor an address: a certificate is for what others call the host by`);
    }
  }
  return names as [string, ...string[]];
}

function certificateText({ cert, key, ca, isNewCa }: Awaited<ReturnType<typeof makeMemberCertificate>>): string {
  const made = isNewCa ? `Made the fleet's CA: keep ${ca.replace(/\.pem$/, '.key')} where no host can read it.\n` : '';
  return `${made}--fleet-tls-cert ${cert}\n--fleet-tls-key  ${key}\n--fleet-tls-ca   ${ca}`;
}
