use super::*;

/// What the longest row comes to.
fn run(levels: &[u8], most: i16, values: u32) -> Result<usize, String> {
    let mut run = 0;
    let counted = count(levels, width(most), values, &mut run);
    counted.map(|()| run).map_err(|fault| fault.problem)
}

#[test]
fn widths() {
    let found = [0, 1, 2, 3, 4, 7, 8].map(width);
    assert_eq!(found, [0, 1, 2, 2, 3, 3, 4]);
}

#[test]
fn levels_are_counted() {
    // Runs: a row that starts, and nine that go on.
    assert_eq!(run(&[2, 0, 18, 1], 1, 10), Ok(10));
    // Only so many as there are values.
    assert_eq!(run(&[2, 0, 18, 1], 1, 5), Ok(5));
    // A group of eight, lowest bit first: 0 1 1 0 1 1 1 1.
    assert_eq!(run(&[3, 0b1111_0110], 1, 8), Ok(5));
    // The same, of which three are there.
    assert_eq!(run(&[3, 0b1111_0110], 1, 3), Ok(3));
    // Two bits each: 0 1 2 3 0 0 3 3.
    assert_eq!(run(&[3, 0b1110_0100, 0b1111_0000], 3, 8), Ok(3));
    let long = run(&[2, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1], 1, u32::MAX);
    assert!(long.unwrap_err().contains("more than 131072"));
    for broken in [&[][..], &[2], &[0, 0], &[3], &[0xff; 20]] {
        assert!(run(broken, 1, 100).is_err(), "{broken:?}");
    }
}

#[test]
fn rows_go_on_from_page_to_page() {
    let mut run = 0;
    for _ in 0..3 {
        count(&[20, 1], 1, 10, &mut run).unwrap();
    }
    assert_eq!(run, 30);
    count(&[20, 0], 1, 10, &mut run).unwrap();
    assert_eq!(run, 1);
}

#[test]
fn lengths_end_where_the_library_says() {
    // One value needs no block.
    assert_eq!(lengths(&[0x80, 1, 4, 1, 2, 9, 9], 1).unwrap(), 5);
    // Two: a block of four parts, of which one has bits.
    let block = [&[0x80, 1, 4, 2, 2, 0, 1, 0, 0, 0][..], &[0; 4], b"rest"].concat();
    assert_eq!(lengths(&block, 2).unwrap(), 14);
    for broken in [
        &[0x80, 1, 4, 3, 2][..],
        &[0x80, 1, 0, 2, 2],
        &[0, 4, 2, 2],
        &[0x80, 1, 5, 2, 2],
        &[0x80, 1, 4],
    ] {
        assert!(lengths(broken, 2).is_err(), "{broken:?}");
    }
}
