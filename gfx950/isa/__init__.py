"""One definition per instruction."""
