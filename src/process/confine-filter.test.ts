/** The filter of system calls, interpreted as the kernel does: for both architectures, whichever this machine has. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { filterOf } from './confine.ts';

type Architecture = Parameters<typeof filterOf>[0];

/** From linux/audit.h: the ELF machine (62 and 183), of 64 bits, with the lowest byte first. */
const auditNames = { x64: 0xc000003e, arm64: 0xc00000b7 } as const;
/**
 * From the kernel's tables of system calls: arch/x86/entry/syscalls/syscall_64.tbl, and
 * include/uapi/asm-generic/unistd.h for arm64.
 */
const numbers = {
  x64: {
    read: 0,
    mmap: 9,
    socket: 41,
    clone: 56,
    fork: 57,
    vfork: 58,
    execve: 59,
    ptrace: 101,
    futex: 202,
    process_vm_readv: 310,
    process_vm_writev: 311,
    execveat: 322,
    io_uring_setup: 425,
    clone3: 435,
  },
  arm64: {
    read: 63,
    futex: 98,
    ptrace: 117,
    socket: 198,
    clone: 220,
    execve: 221,
    process_vm_readv: 270,
    process_vm_writev: 271,
    execveat: 281,
    io_uring_setup: 425,
    clone3: 435,
  },
} as const satisfies Record<Architecture, Readonly<Record<string, number>>>;
const headers = {
  x64: '/usr/include/x86_64-linux-gnu/asm/unistd_64.h',
  arm64: '/usr/include/asm-generic/unistd.h',
} as const;
const architectures = ['x64', 'arm64'] as const;

interface SystemCall {
  readonly audit: number;
  readonly number: number;
  readonly firstArgument?: number;
}

const [allow, notPermitted, noSuchCall] = ['allow', 'error 1', 'error 38'] as const;

/** The kernel's machine for filter programs, as far as these use it (linux/filter.h, struct seccomp_data). */
function verdictOf(program: Buffer, { audit, number, firstArgument = 0 }: SystemCall): string {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number, 0);
  data.writeUInt32LE(audit, 4);
  data.writeUInt32LE(firstArgument, 16);
  let accumulator = 0;
  for (let at = 0; at < program.length / 8; at++) {
    const [code, ifSo, ifNot] = [program.readUInt16LE(8 * at), program[8 * at + 2]!, program[8 * at + 3]!];
    const value = program.readUInt32LE(8 * at + 4);
    const jump = (isSo: boolean): void => void (at += isSo ? ifSo : ifNot);
    switch (code) {
      case 0x20: // BPF_LD | BPF_W | BPF_ABS
        accumulator = data.readUInt32LE(value);
        break;
      case 0x15: // BPF_JMP | BPF_JEQ | BPF_K
        jump(accumulator === value);
        break;
      case 0x35: // BPF_JMP | BPF_JGE | BPF_K
        jump(accumulator >= value);
        break;
      case 0x45: // BPF_JMP | BPF_JSET | BPF_K
        jump((accumulator & value) !== 0);
        break;
      case 0x06: // BPF_RET | BPF_K: SECCOMP_RET_ALLOW, or SECCOMP_RET_ERRNO with the error below it
        if (value === 0x7fff0000) return allow;
        if (value >>> 16 === 5) return `error ${value & 0xffff}`;
        throw new RangeError(`it gives ${value.toString(16)}`);
      default:
        throw new RangeError(`no such instruction: ${code.toString(16)}`);
    }
  }
  throw new RangeError('the program has no end');
}

describe.each(architectures)('on %s', (architecture) => {
  const audit = auditNames[architecture];
  const byName: Readonly<Record<string, number>> = numbers[architecture];
  const verdict = (name: string, firstArgument?: number): string =>
    verdictOf(filterOf(architecture), { audit, number: byName[name]!, ...(firstArgument && { firstArgument }) });

  test('programs, other processes and io_uring, which would bypass the filter, are refused', () => {
    const refused = Object.keys(byName).filter((name) => verdict(name) === notPermitted);
    const forms = ['clone', 'execve', 'execveat', 'fork', 'io_uring_setup', 'process_vm_readv', 'process_vm_writev'];
    const expected = [...forms, 'ptrace', 'socket', 'vfork'].filter((name) => name in byName);
    expect(refused.toSorted()).toEqual(expected);
  });

  test('threads and local sockets are allowed, and clone3 is reported as missing', () => {
    const [asThread, localSocket, internetSocket] = [0x3d0f00, 1, 2];
    expect(verdict('clone', asThread)).toBe(allow);
    expect(verdict('socket', localSocket)).toBe(allow);
    expect(verdict('socket', internetSocket)).toBe(notPermitted);
    expect(verdict('clone3')).toBe(noSuchCall);
    expect([verdict('read'), verdict('futex')]).toEqual([allow, allow]);
  });

  test('calls in the form of another architecture, or with the bit of the x32 form, are refused', () => {
    const other = auditNames[architecture === 'x64' ? 'arm64' : 'x64'];
    const { read } = numbers[architecture];
    expect(verdictOf(filterOf(architecture), { audit: other, number: read })).toBe(notPermitted);
    expect(verdictOf(filterOf(architecture), { audit, number: read + 0x40000000 })).toBe(notPermitted);
  });

  test.skipIf(!existsSync(headers[architecture]))("these numbers are those of the kernel's headers", () => {
    const text = readFileSync(headers[architecture], 'utf8');
    const defined = new Map(
      [...text.matchAll(/^#define __NR(?:3264)?_(\w+)\s+(\d+)$/gm)].map(([, name, number]) => [name, Number(number)]),
    );
    for (const [name, number] of Object.entries(byName)) expect(defined.get(name), name).toBe(number);
  });
});
