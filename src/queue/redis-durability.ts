/**
 * Settings of Redis on which it depends whether an accepted call can be lost, and what each of them costs where it is
 * otherwise.
 */
export const durableSettings: readonly {
  readonly name: string;
  readonly wanted: string;
  /** Follows "Redis". */
  readonly otherwise: string;
}[] = [
  { name: 'appendonly', wanted: 'yes', otherwise: 'forgets accepted calls when it restarts' },
  {
    name: 'maxmemory-policy',
    wanted: 'noeviction',
    otherwise: 'may throw accepted calls away when its memory is full',
  },
];
