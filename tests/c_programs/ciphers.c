// AES-128 with its tables made on the way, and ChaCha20.

static u8 doubled(u8 x) { return (u8)(x << 1 ^ (x & 0x80 ? 0x1b : 0)); }
static u8 product(u8 a, u8 b) { u8 p = 0; for (; b; b >>= 1) { if (b & 1) p ^= a; a = doubled(a); } return p; }
NOINLINE static void make_boxes(u8 *box, u8 *inverse) {
  u8 p = 1, q = 1;
  do {
    p = (u8)(p ^ p << 1 ^ (p & 0x80 ? 0x1b : 0));
    q ^= q << 1; q ^= q << 2; q ^= q << 4; if (q & 0x80) q ^= 0x09;
    u8 x = (u8)(q ^ (q << 1 | q >> 7) ^ (q << 2 | q >> 6) ^ (q << 3 | q >> 5) ^ (q << 4 | q >> 4) ^ 0x63);
    box[p] = x; inverse[x] = p;
  } while (p != 1);
  box[0] = 0x63; inverse[0x63] = 0; }

NOINLINE static void expand(u8 *keys, const u8 *box) {
  u8 round = 1;
  for (u32 k = 16; k < 176; k += 4) {
    u8 word[4];
    for (u32 b = 0; b < 4; b++) word[b] = keys[k - 4 + b];
    if (k % 16 == 0) {
      u8 first = word[0];
      word[0] = box[word[1]] ^ round; word[1] = box[word[2]]; word[2] = box[word[3]]; word[3] = box[first];
      round = doubled(round);
    }
    for (u32 b = 0; b < 4; b++) keys[k + b] = keys[k - 16 + b] ^ word[b];
  } }

static void add_key(u8 *s, const u8 *key) { for (u32 k = 0; k < 16; k++) s[k] ^= key[k]; }
NOINLINE static void encrypt(u8 *s, const u8 *keys, const u8 *box) {
  add_key(s, keys);
  for (u32 round = 1; round <= 10; round++) {
    u8 t[16];
    for (u32 k = 0; k < 16; k++) t[k] = box[s[(k + k % 4 * 4) % 16]];
    for (u32 c = 0; c < 16; c += 4) {
      u8 all = t[c] ^ t[c + 1] ^ t[c + 2] ^ t[c + 3];
      for (u32 r = 0; r < 4; r++) s[c + r] = round == 10 ? t[c + r] : t[c + r] ^ all ^ doubled(t[c + r] ^ t[c + (r + 1) % 4]);
    }
    add_key(s, keys + 16 * round);
  } }

NOINLINE static void decrypt(u8 *s, const u8 *keys, const u8 *inverse) {
  for (u32 round = 10; round >= 1; round--) {
    add_key(s, keys + 16 * round);
    u8 t[16];
    for (u32 c = 0; c < 16; c += 4)
      for (u32 r = 0; r < 4; r++)
        t[c + r] = round == 10 ? s[c + r] : product(s[c + r], 14) ^ product(s[c + (r + 1) % 4], 11)
                                          ^ product(s[c + (r + 2) % 4], 13) ^ product(s[c + (r + 3) % 4], 9);
    for (u32 k = 0; k < 16; k++) s[(k + k % 4 * 4) % 16] = inverse[t[k]];
  }
  add_key(s, keys); }

// One block under one key, and whether decryption gives the block back.
PROGRAM(aes128, 8, 5) {
  u8 box[256], inverse[256], keys[176], state[16];
  make_boxes(box, inverse);
  for (u32 k = 0; k < 16; k++) { keys[k] = (u8)(in[k / 4] >> k % 4 * 8); state[k] = (u8)(in[4 + k / 4] >> k % 4 * 8); }
  expand(keys, box);
  encrypt(state, keys, box);
  for (u32 k = 0; k < 4; k++) out[k] = state[4 * k] | state[4 * k + 1] << 8 | state[4 * k + 2] << 16 | (u32)state[4 * k + 3] << 24;
  decrypt(state, keys, inverse);
  u32 same = 0;
  for (u32 k = 0; k < 16; k++) same += state[k] == (u8)(in[4 + k / 4] >> k % 4 * 8);
  out[4] = same;
}

#define LEFT(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define QUARTER(a, b, c, d) \
  a += b; d ^= a; d = LEFT(d, 16); c += d; b ^= c; b = LEFT(b, 12); a += b; d ^= a; d = LEFT(d, 8); c += d; b ^= c; b = LEFT(b, 7);

PROGRAM(chacha20, 12, 16) {
  u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
  for (u32 k = 0; k < 12; k++) start[4 + k] = in[k];
  for (u32 k = 0; k < 16; k++) x[k] = start[k];
  for (u32 k = 0; k < 10; k++) {
    QUARTER(x[0], x[4], x[8], x[12]) QUARTER(x[1], x[5], x[9], x[13]) QUARTER(x[2], x[6], x[10], x[14]) QUARTER(x[3], x[7], x[11], x[15])
    QUARTER(x[0], x[5], x[10], x[15]) QUARTER(x[1], x[6], x[11], x[12]) QUARTER(x[2], x[7], x[8], x[13]) QUARTER(x[3], x[4], x[9], x[14])
  }
  for (u32 k = 0; k < 16; k++) out[k] = x[k] + start[k];
}
