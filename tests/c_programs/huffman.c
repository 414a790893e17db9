// Huffman's code: counts, a tree by two smallest, codes by walking it, encoding to bits and decoding back.

typedef struct { u16 weight; i8 left, right; } tree_node;

NOINLINE static void assign(const tree_node *nodes, i32 at, u32 code, u32 length, u16 *codes, u8 *lengths) {
  if (nodes[at].left < 0) { codes[at] = (u16)code; lengths[at] = (u8)(length ? length : 1); return; }
  assign(nodes, nodes[at].left, code << 1, length + 1, codes, lengths);
  assign(nodes, nodes[at].right, code << 1 | 1, length + 1, codes, lengths);
}

NOINLINE static i32 build(tree_node *nodes, const u16 *counts) {
  u8 live[31]; i32 used = 16, root = 0;
  for (i32 k = 0; k < 16; k++) { nodes[k] = (tree_node){counts[k], -1, -1}; live[k] = counts[k] != 0; if (live[k]) root = k; }
  for (;;) {
    i32 a = -1, b = -1;
    for (i32 k = 0; k < used; k++) {
      if (!live[k]) continue;
      if (a < 0 || nodes[k].weight < nodes[a].weight) { b = a; a = k; }
      else if (b < 0 || nodes[k].weight < nodes[b].weight) b = k;
    }
    if (b < 0) return root;
    nodes[used] = (tree_node){(u16)(nodes[a].weight + nodes[b].weight), (i8)a, (i8)b};
    live[a] = live[b] = 0; live[used] = 1; root = used++;
  }
}

NOINLINE static u32 encode(const u8 *text, u32 count, const u16 *codes, const u8 *lengths, u32 *bits) {
  u32 used = 0;
  for (u32 k = 0; k < 20; k++) bits[k] = 0;
  for (u32 k = 0; k < count; k++)
    for (u32 b = lengths[text[k]]; b-- > 0; used++) bits[used / 32] |= (u32)(codes[text[k]] >> b & 1) << used % 32;
  return used;
}

NOINLINE static u32 decode(const tree_node *nodes, i32 root, const u32 *bits, u32 used, u8 *text) {
  u32 count = 0;
  i32 at = root;
  for (u32 k = 0; k < used; k++) {
    if (nodes[root].left >= 0) at = bits[k / 32] >> k % 32 & 1 ? nodes[at].right : nodes[at].left;
    if (nodes[at].left < 0) { text[count++] = (u8)at; at = root; }
  }
  return count;
}

PROGRAM(huffman, 6, 5) {
  u8 text[80], back[80], lengths[31]; u16 counts[16], codes[31]; tree_node nodes[31]; u32 bits[20];
  for (u32 k = 0; k < 16; k++) counts[k] = 0;
  for (u32 k = 0; k < 31; k++) { codes[k] = 0; lengths[k] = 0; }
  for (u32 k = 0; k < 80; k++) { u32 word = in[k % 6] >> k * 5 % 27; text[k] = (u8)(word & word >> 4 & 15); counts[text[k]]++; }
  i32 root = build(nodes, counts);
  assign(nodes, root, 0, 0, codes, lengths);
  u32 used = encode(text, 80, codes, lengths, bits), count = decode(nodes, root, bits, used, back), mix = 0, same = 0;
  for (u32 k = 0; k < 20; k++) mix = mix * 31 + bits[k];
  for (u32 k = 0; k < 80; k++) same += text[k] == back[k];
  out[0] = used; out[1] = count; out[2] = mix; out[3] = same; out[4] = (u32)nodes[root].weight + (u32)lengths[3] * 1000;
}
