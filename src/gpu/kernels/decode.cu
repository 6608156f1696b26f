// Decodes a coded pack into a layer's place: see src/coding/form.ts for the form, and src/coding/decode.ts for the same
// in TypeScript. A warp decodes a unit; one more checks the directory. Nothing that the coded bytes say makes a warp read
// or write outside of the pack: they may have been changed on their way.
#ifndef TURNTABLE_DECODE
#define TURNTABLE_DECODE

namespace coding {

enum Form { raw, f32, bf16Form, f16Form, bf16In32, f16In32 };
const u32 headerWords = 8, unitWords = 8, tableWords = 128, checkAt = 5;
const u32 unitElements = 8192, rawUnitBytes = 32768;
const u32 checkStart = 0x811c9dc5u, checkFactor = 0x9e3779b1u, laneFactor = 0x85ebca77u, codesFactor = 0xc2b2ae3du;
const u32 everyLane = 0xffffffffu;
const u32 warpsPerBlock = 4;

__device__ __forceinline__ u32 countBits(u32 mask) {
#ifdef EMU
  return __popc(mask);
#else
  u32 bits;
  asm("popc.b32 %0, %1;" : "=r"(bits) : "r"(mask));
  return bits;
#endif
}

// The low word of (high:low) >> bits; only the lowest 5 bits of `bits` count.
__device__ __forceinline__ u32 shifted(u32 low, u32 high, u32 bits) {
#ifdef EMU
  return (u32)((((u64)high << 32) | low) >> (bits & 31));
#else
  u32 word;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(bits));
  return word;
#endif
}

__device__ __forceinline__ void add(u32& check, u32 word) { check = check * checkFactor + word; }

// The sum of the lanes' polynomials, in every lane.
__device__ __forceinline__ u32 total(u32 check, u32 lane) {
  u32 sum = check * ((2 * lane + 1) * laneFactor);
  for (int step = 16; step > 0; step >>= 1) sum += (u32)__shfl_xor_sync(everyLane, (int)sum, step);
  return sum;
}

struct Unit {
  u32 form, table, count, byteOffset, firstWord, halfWords, check;
};

// The bits of an f32 with the value of an f16 that is no NaN.
__device__ __forceinline__ u32 widened(u32 bits) {
  f16 value;
  value.bits = (u16)bits;
  return __float_as_uint(f16ToF32(value));
}

// Four elements of a group, from their exponents (in the highest byte of `entry`) and the bits that were not coded.
template <int form>
__device__ __forceinline__ void put(u8* to, const u32* entry, const u32* plane) {
  u32 value[4];
  if (form == f32) {
    // Exponent, mantissa, sign: the sign comes to the front again.
    const u32 rest[4] = {plane[0], shifted(plane[0], plane[1], 24), shifted(plane[1], plane[2], 16), plane[2] >> 8};
    for (int i = 0; i < 4; i++) {
      const u32 rotated = (entry[i] & 0xff000000u) | (rest[i] & 0xffffffu);
      value[i] = shifted(rotated, rotated, 1);
    }
  } else {
    for (int i = 0; i < 4; i++) {
      const u32 eight = (plane[0] >> (8 * i)) & 255;
      if (form == f16Form || form == f16In32) {
        const u32 rest = eight | (((plane[1] >> (3 * i)) & 7) << 8);
        const u32 bits = ((entry[i] >> 24) << 10) | (rest >> 1) | ((rest & 1) << 15);
        value[i] = form == f16In32 ? widened(bits) : bits;
      } else {
        const u32 bits = ((entry[i] >> 24) << 7) | (eight >> 1) | ((eight & 1) << 15);
        value[i] = form == bf16In32 ? bits << 16 : bits;
      }
    }
  }
  if (form == bf16Form || form == f16Form) {
    const u32 pair[2] = {value[0] | (value[1] << 16), value[2] | (value[3] << 16)};
    *(u64*)to = pair[0] | ((u64)pair[1] << 32);
  } else {
    const Word word = {value[0], value[1], value[2], value[3]};
    *(Word*)to = word;
  }
}

// Returns whether the check is right.
template <int form>
__device__ __forceinline__ bool decode(const Unit& unit, const u32* coded, u32 words, const u32* table, u8* pack, u32 lane) {
  const bool isF16 = form == f16Form || form == f16In32;
  const int bytes = form == bf16Form || form == f16Form ? 2 : 4;
  const u32 groups = unit.count / 4;
  const u32 upper = form == f32 ? 2 * groups : isF16 ? (12 * groups + 31) / 32 : 0;
  const u32* planes = coded + unit.firstWord;
  const u16* codes = (const u16*)(planes + groups + upper);
  // What is read beyond a unit's end, of codes that were changed, is still in the pack.
  const u32 limit = 2 * (words - unit.firstWord - groups - upper) - 1;
  u8* to = pack + unit.byteOffset;
  const u32 below = (1u << lane) - 1;
  u32 bits = 0, available = 0, cursor = 0;
  u32 checkPlanes = checkStart, checkCodes = checkStart;
  for (u32 first = 0; first < groups; first += 32) {
    const u32 group = first + lane;
    const bool isHere = group < groups;
    u32 entry[4];
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
      const bool needs = isHere && available < 16;
      const u32 asking = __ballot_sync(everyLane, needs);
      if (needs) {
        const u32 at = cursor + countBits(asking & below);
        const u32 word = codes[at < limit ? at : limit];
        add(checkCodes, word);
        bits |= word << available;
        available += 16;
      }
      cursor += countBits(asking);
      entry[pair] = table[bits & 255];
      bits = shifted(bits, 0, entry[pair]);
      entry[pair + 1] = table[bits & 255];
      bits = shifted(bits, 0, entry[pair + 1]);
      // Lengths stand in the lowest bits.
      available -= (entry[pair] + entry[pair + 1]) & 255;
    }
    u32 plane[3] = {0, 0, 0};
    if (isHere) {
      add(checkPlanes, plane[0] = planes[group]);
      if (form == f32) {
        add(checkPlanes, plane[1] = planes[groups + group]);
        add(checkPlanes, plane[2] = planes[2 * groups + group]);
      }
    }
    if (isF16) {
      // A step has 12 words for the three upper bits of 128 elements.
      const u32 at = 12 * (first / 32) + lane;
      u32 word = 0;
      if (lane < 12 && at < upper) add(checkPlanes, word = planes[groups + at]);
      const u32 bit = 12 * lane;
      const u32 low = (u32)__shfl_sync(everyLane, (int)word, (int)(bit / 32));
      const u32 high = (u32)__shfl_sync(everyLane, (int)word, (int)(bit / 32 + 1 < 12 ? bit / 32 + 1 : 11));
      plane[1] = shifted(low, high, bit & 31);
    }
    if (isHere) put<form>(to + (u64)group * (4 * bytes), entry, plane);
  }
  if ((unit.halfWords & 1) != 0 && lane == 0) add(checkCodes, codes[unit.halfWords < limit ? unit.halfWords : limit]);
  const u32 check = total(checkPlanes, lane) + total(checkCodes, lane) * codesFactor;
  return check == unit.check && cursor == unit.halfWords;
}

// Returns whether the check is right.
__device__ __forceinline__ bool copyRaw(const Unit& unit, const u32* coded, u8* pack, u32 lane) {
  const u32* from = coded + unit.firstWord;
  u8* to = pack + unit.byteOffset;
  const u32 whole = unit.count / 4;
  u32 check = checkStart;
  for (u32 word = lane; word < whole; word += 32) {
    const u32 value = from[word];
    add(check, value);
    ((u32*)to)[word] = value;
  }
  if ((unit.count & 3) != 0 && lane == whole % 32) {
    const u32 value = from[whole];
    add(check, value);
    for (u32 byte = 0; byte < (unit.count & 3); byte++) to[4 * whole + byte] = (u8)(value >> (8 * byte));
  }
  return total(check, lane) + total(checkStart, lane) * codesFactor == unit.check;
}

// Whatever a directory says, nothing outside of the pack is read or written.
__device__ __forceinline__ bool isWithin(const Unit& unit, u32 words, u64 bytes, u32 units) {
  const bool isRaw = unit.form == raw;
  const u64 each = isRaw ? 1 : unit.form == bf16Form || unit.form == f16Form ? 2 : 4;
  const u32 groups = unit.count / 4;
  const u64 upper = unit.form == f32 ? 2 * groups : unit.form == f16Form || unit.form == f16In32 ? (12 * groups + 31) / 32 : 0;
  const u64 held = isRaw ? (unit.count + 3) / 4 : groups + upper + (unit.halfWords + 1) / 2;
  return unit.form <= f16In32 && unit.count <= (isRaw ? rawUnitBytes : unitElements) &&
         unit.byteOffset % (isRaw ? 4 : 16) == 0 && (isRaw || unit.count % 4 == 0) &&
         unit.byteOffset + unit.count * each <= bytes && unit.firstWord + held <= words &&
         headerWords + (u64)units * unitWords + (u64)(unit.table + 1) * tableWords <= words;
}

__device__ __forceinline__ bool checkDirectory(const u32* coded, u32 words, u32 units, u32 expected, u32 lane) {
  const u64 end = headerWords + (u64)units * unitWords + (u64)coded[2] * tableWords;
  if (end > words) return false;
  u32 check = checkStart;
  for (u32 word = lane; word < end; word += 32) add(check, word == checkAt ? 0 : coded[word]);
  return coded[checkAt] == expected && total(check, lane) == expected;
}

__device__ __forceinline__ bool decodeUnit(const u32* coded, u32 words, u32 index, u32 units, u8* pack, u64 bytes,
                                           u32* table, u32 lane) {
  const u32* at = coded + headerWords + (u64)index * unitWords;
  u32 check = checkStart;
  const u32 mine = lane < unitWords ? at[lane] : 0;
  if (lane < unitWords - 1) add(check, mine);
  u32 word[unitWords];
  for (u32 i = 0; i < unitWords; i++) word[i] = (u32)__shfl_sync(everyLane, (int)mine, (int)i);
  const Unit unit = {word[0] & 255, word[0] >> 8, word[1], word[2], word[3], word[4], word[5]};
  if (total(check, lane) != word[unitWords - 1] || !isWithin(unit, words, bytes, units)) return false;
  if (unit.form == raw) return copyRaw(unit, coded, pack, lane);
  // Entries of 16 bits, a symbol below a length, become words with the symbol in front and the length at the end.
  const u32* entries = coded + headerWords + (u64)units * unitWords + (u64)unit.table * tableWords;
  for (u32 i = lane; i < tableWords; i += 32) {
    const u32 two = entries[i];
    table[2 * i] = (two << 24) | ((two >> 8) & 255);
    table[2 * i + 1] = ((two << 8) & 0xff000000u) | (two >> 24);
  }
  __syncwarp();
  switch (unit.form) {
    case f32:
      return decode<f32>(unit, coded, words, table, pack, lane);
    case bf16Form:
      return decode<bf16Form>(unit, coded, words, table, pack, lane);
    case f16Form:
      return decode<f16Form>(unit, coded, words, table, pack, lane);
    case bf16In32:
      return decode<bf16In32>(unit, coded, words, table, pack, lane);
    default:
      return decode<f16In32>(unit, coded, words, table, pack, lane);
  }
}

}  // namespace coding

// `expected`: the directory's check, so that bytes of another pack are found as well. A warp that finds a wrong check
// writes 1 to `failed`.
KERNEL void decodePack(const u32* coded, u8* pack, u32* failed, u32 words, u32 units, u32 expected, i64 bytes) {
  __shared__ u32 tables[coding::warpsPerBlock * 256];
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  const u32 index = blockIdx.x * coding::warpsPerBlock + warp;
  if (index > units) return;
  const bool isRight = index == units
                           ? coding::checkDirectory(coded, words, units, expected, lane)
                           : coding::decodeUnit(coded, words, index, units, pack, (u64)bytes, tables + 256 * warp, lane);
  if (!isRight && lane == 0) *failed = 1;
}

#endif
