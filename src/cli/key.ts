import { text } from 'node:stream/consumers';
import { Command, type AnyCommand } from './commander.ts';
import { apiKeyEntry, newApiKey, scopes } from '../host/index.ts';
import { spoken, usage } from './error.ts';

export function keyCommand(): AnyCommand {
  return new Command('key')
    .description(
      'Make an API key, and the entry of "apiKeys" (or TURNTABLE_API_KEYS) that lets it in. The key is printed once; ' +
        'the entry holds its hash only.',
    )
    .argument('<name>', 'who it is for; the log has this name')
    .option('--scopes <list>', `what it allows, of ${scopes.join(', ')}`, 'invoke,read')
    .option('--from-stdin', 'make the entry for a key that is read from standard input')
    .option('--json', 'print JSON')
    .action(async (name, options) => {
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
