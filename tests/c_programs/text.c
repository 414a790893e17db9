// Strings: search, distance, numbers as text, Base64, a compressor, a matcher and a parser that call themselves.

static void letters(u8 *text, u32 count, GLOBAL const u32 *in, u32 words, u32 alphabet) {
  for (u32 k = 0; k < count; k++) text[k] = (u8)('a' + (in[k % words] >> k * 3 % 29 & 15) % alphabet); }

NOINLINE static u32 search_by_failure(const u8 *text, u32 length, const u8 *word, u32 size) {
  u8 failure[8]; u32 hits = 0;
  failure[0] = 0;
  for (u32 i = 1, k = 0; i < size; i++) { while (k && word[i] != word[k]) k = failure[k - 1]; if (word[i] == word[k]) k++; failure[i] = (u8)k; }
  for (u32 i = 0, k = 0; i < length; i++) {
    while (k && text[i] != word[k]) k = failure[k - 1];
    if (text[i] == word[k]) k++;
    if (k == size) { hits = hits * 67 + i; k = failure[k - 1]; }
  }
  return hits; }
NOINLINE static u32 search_by_jumps(const u8 *text, u32 length, const u8 *word, u32 size) {
  u8 jump[256]; u32 hits = 0;
  for (u32 k = 0; k < 256; k++) jump[k] = (u8)size;
  for (u32 k = 0; k + 1 < size; k++) jump[word[k]] = (u8)(size - 1 - k);
  for (u32 at = 0; at + size <= length; at += jump[text[at + size - 1]]) {
    u32 k = 0; while (k < size && text[at + k] == word[k]) k++;
    if (k == size) hits = hits * 67 + at + size - 1;
  }
  return hits; }

PROGRAM(string_search, 6, 3) {
  u8 text[64], word[4];
  letters(text, 64, in, 4, 2); letters(word, 4, in + 4, 2, 2);
  u32 size = 2 + in[5] % 3;
  out[0] = search_by_failure(text, 64, word, size); out[1] = search_by_jumps(text, 64, word, size);
  u32 slow = 0;
  for (u32 at = 0; at + size <= 64; at++) {
    u32 k = 0; while (k < size && text[at + k] == word[k]) k++;
    if (k == size) slow = slow * 67 + at + size - 1;
  }
  out[2] = slow; }

PROGRAM(edit_distance, 4, 1) {
  u8 a[14], b[11]; u16 row[12];
  letters(a, 14, in, 2, 5); letters(b, 11, in + 2, 2, 5);
  for (u32 j = 0; j <= 11; j++) row[j] = (u16)j;
  for (u32 i = 1; i <= 14; i++) {
    u16 diagonal = row[0]; row[0] = (u16)i;
    for (u32 j = 1; j <= 11; j++) {
      u16 best = (u16)(diagonal + (a[i - 1] != b[j - 1])); diagonal = row[j];
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  out[0] = row[11]; }

NOINLINE static u32 printed(char *text, i64 value, u32 base) {
  char reversed[66]; u32 count = 0, length = 0; u64 rest = value < 0 ? 0 - (u64)value : (u64)value;
  do { reversed[count++] = "0123456789abcdefghijklmnopqrstuvwxyz"[rest % base]; rest /= base; } while (rest);
  if (value < 0) text[length++] = '-';
  while (count) text[length++] = reversed[--count];
  text[length] = 0;
  return length; }
NOINLINE static i64 scanned(const char *text, u32 base) {
  u32 negative = *text == '-'; u64 value = 0;
  for (text += negative; *text; text++) value = value * base + (u64)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
  return negative ? (i64)(0 - value) : (i64)value; }

PROGRAM(numbers_as_text, 3, 4) {
  char text[70]; u32 base = 2 + in[2] % 35, mix = 0;
  u32 length = printed(text, (i64)wide_at(in, 0), base);
  for (u32 k = 0; k < length; k++) mix = mix * 31 + (u8)text[k];
  wide_to(out, 0, (u64)scanned(text, base)); out[2] = mix; out[3] = length; }

PROGRAM(base64, 6, 10) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  u8 text[36], back[24];
  u32 count = in[5] % 19 + 3, length = 0, decoded = 0;
  for (u32 k = 0; k < 36; k++) text[k] = '=';
  for (u32 k = 0; k < count; k += 3) {
    u32 group = 0;
    for (u32 b = 0; b < 3; b++) group = group << 8 | (k + b < count ? in[(k + b) / 4 % 6] >> (k + b) % 4 * 8 & 255 : 0);
    for (u32 b = 0; b < 4; b++) if (b <= count - k) text[length + b] = (u8)alphabet[group >> (18 - 6 * b) & 63];
    length += 4;
  }
  u32 bits = 0, held = 0;
  for (u32 k = 0; k < length && text[k] != '='; k++) {
    u32 digit = 0; while ((u8)alphabet[digit] != text[k]) digit++;
    bits = bits << 6 | digit; held += 6;
    if (held >= 8) { held -= 8; back[decoded++] = (u8)(bits >> held); }
  }
  for (u32 k = 0; k < 8; k++) { out[k] = 0; for (u32 b = 0; b < 4; b++) out[k] |= (u32)text[4 * k + b] << 8 * b; }
  u32 mix = decoded; for (u32 k = 0; k < decoded; k++) mix = mix * 31 + back[k];
  out[8] = mix; out[9] = length; }

PROGRAM(compressor, 4, 3) {
  u8 text[96], packed[200], back[96]; u32 size = 0, at = 0, same = 0;
  letters(text, 96, in, 4, 3);
  while (at < 96) {
    u32 best = 0, distance = 0;
    for (u32 d = 1; d <= at && d < 64; d++) {
      u32 n = 0; while (at + n < 96 && n < 63 && text[at + n] == text[at + n - d]) n++;
      if (n > best) { best = n; distance = d; }
    }
    if (best >= 3) { packed[size++] = (u8)(0x80 | best); packed[size++] = (u8)distance; at += best; }
    else packed[size++] = text[at++];
  }
  u32 mix = 0, end = 0;
  for (u32 k = 0; k < size; k++) mix = mix * 31 + packed[k];
  for (u32 k = 0; k < size;) {
    u8 code = packed[k++];
    if (code & 0x80) { u32 d = packed[k++]; for (u32 n = code & 0x7f; n; n--, end++) back[end] = back[end - d]; }
    else back[end++] = code;
  }
  for (u32 k = 0; k < 96; k++) same += text[k] == back[k];
  out[0] = size; out[1] = mix; out[2] = same; }

// Patterns with . * ? and ^ $ ends, after the well-known matcher of a few lines.
NOINLINE static u32 matches_here(const char *pattern, const u8 *text, u32 left);
NOINLINE static u32 matches_star(char c, const char *pattern, const u8 *text, u32 left) {
  for (;;) { if (matches_here(pattern, text, left)) return 1; if (!left || (c != '.' && (u8)c != *text)) return 0; text++; left--; } }
// On its own, since clang 22 at -O1 makes an endless loop of it inside matches_here.
NOINLINE static u32 matches_optional(const char *pattern, const u8 *text, u32 left) {
  if (left && (pattern[0] == '.' || (u8)pattern[0] == *text) && matches_here(pattern + 2, text + 1, left - 1)) return 1;
  return matches_here(pattern + 2, text, left); }
static u32 matches_here(const char *pattern, const u8 *text, u32 left) {
  if (!pattern[0]) return 1;
  if (pattern[1] == '*') return matches_star(pattern[0], pattern + 2, text, left);
  if (pattern[0] == '$' && !pattern[1]) return left == 0;
  if (pattern[1] == '?') return matches_optional(pattern, text, left);
  return left && (pattern[0] == '.' || (u8)pattern[0] == *text) && matches_here(pattern + 1, text + 1, left - 1); }

PROGRAM(pattern_matcher, 2, 1) {
  static const char *const patterns[] = {"ab*c", "a.*b$", "ca?b", "b.a*c", "aaa", "cc*b*a", "a?b?c?$", "b*"};
  u8 text[10]; letters(text, 10, in, 2, 3);
  u32 found = 0;
  for (u32 p = 0; p < 8; p++)
    for (u32 k = 0; k <= 10; k++) if (matches_here(patterns[p], text + k, 10 - k)) { found |= 1u << p | 256u << (k & 7); break; }
  out[0] = found; }

// Sums, products and parentheses over one-digit numbers, by recursive descent.
typedef struct { const u8 *text; u32 at; } reader;
NOINLINE static i32 sum_of(reader *r);
NOINLINE static i32 factor_of(reader *r) {
  if (r->text[r->at] == '-') { r->at++; return (i32)(0u - (u32)factor_of(r)); }
  if (r->text[r->at] == '(') { r->at++; i32 value = sum_of(r); r->at++; return value; }
  return r->text[r->at++] - '0'; }
NOINLINE static i32 term_of(reader *r) {
  u32 value = (u32)factor_of(r);
  for (;;) { u8 c = r->text[r->at];
    if (c == '*') { r->at++; value *= (u32)factor_of(r); }
    else if (c == '/') { r->at++; i32 d = factor_of(r); value = d == 0 || d == -1 ? value : (u32)((i32)value / d); }
    else return (i32)value; } }
static i32 sum_of(reader *r) {
  u32 value = (u32)term_of(r);
  for (;;) { u8 c = r->text[r->at];
    if (c == '+') { r->at++; value += (u32)term_of(r); } else if (c == '-') { r->at++; value -= (u32)term_of(r); } else return (i32)value; } }

PROGRAM(parser, 4, 2) {
  u8 text[56]; u32 length = 0, open = 0;
  for (u32 k = 0; k < 9; k++) {
    u32 choice = in[k % 4] >> k * 3 % 28;
    if ((choice & 3) == 0 && open < 3) { text[length++] = '('; open++; }
    if ((choice & 12) == 0) text[length++] = '-';
    text[length++] = (u8)('0' + choice % 10);
    if ((choice & 48) == 0 && open) { text[length++] = ')'; open--; }
    if (k < 8) text[length++] = (u8)"+-*/"[choice >> 4 & 3];
  }
  while (open--) text[length++] = ')';
  text[length] = 0;
  reader r = {text, 0};
  out[0] = (u32)sum_of(&r); out[1] = r.at == length ? length : 999; }
