// Checksums, hash functions and hash tables; their tables are constants of the code object.

static const u32 sha_constants[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
  0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
  0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
  0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
  0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
  0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
#define ROTATED(x, n) ((x) >> (n) | (x) << (32 - (n)))

NOINLINE static void sha_block(u32 *state, const u8 *block) {
  u32 w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (u32 k = 0; k < 16; k++)
    w[k] = (u32)block[4 * k] << 24 | block[4 * k + 1] << 16 | block[4 * k + 2] << 8 | block[4 * k + 3];
  for (u32 k = 16; k < 64; k++) {
    u32 s0 = ROTATED(w[k - 15], 7) ^ ROTATED(w[k - 15], 18) ^ w[k - 15] >> 3;
    u32 s1 = ROTATED(w[k - 2], 17) ^ ROTATED(w[k - 2], 19) ^ w[k - 2] >> 10;
    w[k] = w[k - 16] + s0 + w[k - 7] + s1;
  }
  for (u32 k = 0; k < 64; k++) {
    u32 t1 = h + (ROTATED(e, 6) ^ ROTATED(e, 11) ^ ROTATED(e, 25)) + ((e & f) ^ (~e & g)) + sha_constants[k] + w[k];
    u32 t2 = (ROTATED(a, 2) ^ ROTATED(a, 13) ^ ROTATED(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g; g = f; f = e; e = d + t1; d = c; c = b; b = a; a = t1 + t2;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}

// The digest of 0 to 79 bytes, big-endian words as the standard prints them.
PROGRAM(sha256, 21, 8) {
  u32 state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  u32 length = in[20] % 80, blocks = (length + 9 + 63) / 64;
  u8 message[128];
  for (u32 k = 0; k < 128; k++) message[k] = k < length ? (u8)(in[k / 4] >> k % 4 * 8) : 0;
  message[length] = 0x80;
  for (u32 k = 0; k < 4; k++) message[blocks * 64 - 1 - k] = (u8)(length * 8 >> 8 * k);
  for (u32 k = 0; k < blocks; k++) sha_block(state, message + 64 * k);
  for (u32 k = 0; k < 8; k++) out[k] = state[k];
}

static u32 crc_entry(u32 x) { for (u32 k = 0; k < 8; k++) x = x & 1 ? x >> 1 ^ 0xedb88320u : x >> 1; return x; }
static const u32 crc_nibbles[16] = {
  0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
  0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

// The CRC-32 of the sixteen bytes of the input by three ways that agree.
PROGRAM(crc32, 4, 3) {
  u32 whole = ~0u, bytes = ~0u, nibbles = ~0u;
  for (u32 k = 0; k < 16; k++) {
    u32 byte = in[k / 4] >> k % 4 * 8 & 255;
    for (u32 b = 0; b < 8; b++) { u32 bit = (whole ^ byte >> b) & 1; whole = whole >> 1 ^ (bit ? 0xedb88320u : 0); }
    bytes = bytes >> 8 ^ crc_entry((bytes ^ byte) & 255);
    nibbles = nibbles >> 4 ^ crc_nibbles[(nibbles ^ byte) & 15];
    nibbles = nibbles >> 4 ^ crc_nibbles[(nibbles ^ byte >> 4) & 15];
  }
  out[0] = ~whole; out[1] = ~bytes; out[2] = ~nibbles;
}

// A table with open addressing: insertions, removals that leave marks, and look-ups.
PROGRAM(hash_table, 8, 3) {
  u32 keys[32]; u16 values[32]; u8 states[32];
  for (u32 k = 0; k < 32; k++) { keys[k] = 0; values[k] = 0; states[k] = 0; }
  u32 stored = 0, probes = 0;
  for (u32 k = 0; k < 40; k++) {
    u32 key = in[k % 8] >> k / 8 * 5 & 63, at = key * 2654435761u >> 27, free = 99;
    u32 tries = 0;
    for (; tries < 32 && states[at]; tries++, at = (at + 1) & 31) {
      probes++;
      if (states[at] == 1 && keys[at] == key) break;
      if (states[at] == 2 && free == 99) free = at;
    }
    u32 present = tries < 32 && states[at] == 1;
    if (k % 3 == 2) { if (present) { states[at] = 2; stored--; } }
    else if (present) values[at] = (u16)(values[at] * 3 + k);
    else { u32 place = free != 99 ? free : tries < 32 ? at : 99;
           if (place != 99) { keys[place] = key; values[place] = (u16)k; states[place] = 1; stored++; } }
  }
  u32 mix = 0;
  for (u32 k = 0; k < 32; k++) mix = (mix ^ (states[k] == 1 ? keys[k] + values[k] * 64 : states[k])) * 16777619u;
  out[0] = mix; out[1] = stored; out[2] = probes;
}

PROGRAM(siphash, 8, 2) {
  u64 k0 = wide_at(in, 0), k1 = wide_at(in, 2);
  u64 v0 = k0 ^ 0x736f6d6570736575ull, v1 = k1 ^ 0x646f72616e646f6dull, v2 = k0 ^ 0x6c7967656e657261ull, v3 = k1 ^ 0x7465646279746573ull;
#define TURN(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define ROUND() { v0 += v1; v1 = TURN(v1, 13) ^ v0; v0 = TURN(v0, 32); v2 += v3; v3 = TURN(v3, 16) ^ v2; \
                  v0 += v3; v3 = TURN(v3, 21) ^ v0; v2 += v1; v1 = TURN(v1, 17) ^ v2; v2 = TURN(v2, 32); }
  for (u32 k = 0; k < 3; k++) {
    u64 m = k < 2 ? wide_at(in, 4 + 2 * k) : 16ull << 56;
    v3 ^= m; ROUND() ROUND() v0 ^= m;
  }
  v2 ^= 0xff; ROUND() ROUND() ROUND() ROUND()
  wide_to(out, 0, v0 ^ v1 ^ v2 ^ v3);
}

PROGRAM(small_hashes, 8, 4) {
  u32 fnv = 2166136261u, a = 1, b = 0, murmur = in[0]; u64 jenkins = 0;
  for (u32 k = 0; k < 32; k++) {
    u8 byte = (u8)(in[k / 4] >> k % 4 * 8);
    fnv = (fnv ^ byte) * 16777619u;
    a = (a + byte) % 65521; b = (b + a) % 65521;
    jenkins += byte; jenkins += jenkins << 10; jenkins ^= jenkins >> 6;
  }
  for (u32 k = 0; k < 8; k++) {
    u32 x = in[k] * 0xcc9e2d51u; x = (x << 15 | x >> 17) * 0x1b873593u;
    murmur ^= x; murmur = (murmur << 13 | murmur >> 19) * 5 + 0xe6546b64u;
  }
  murmur ^= murmur >> 16; murmur *= 0x85ebca6bu; murmur ^= murmur >> 13;
  out[0] = fnv; out[1] = b << 16 | a; out[2] = murmur; out[3] = (u32)(jenkins ^ jenkins >> 32);
}
