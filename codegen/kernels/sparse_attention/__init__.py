"""Page-16 block-sparse paged attention: cache writer, index scores, top-16 selection with its page table, attention."""
