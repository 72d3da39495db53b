//! Small collections, which Redis keeps in one block of bytes: listpacks, ziplists, sets of integers and zipmaps.

/// The elements of a block; `None` if it is damaged.
pub(super) type Elements = Option<Vec<Vec<u8>>>;

/// The next bytes of a block.
struct Block<'a>(&'a [u8]);

impl<'a> Block<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn number(&mut self, bytes: usize) -> Option<i64> {
        let taken = self.take(bytes)?;
        let mut padded = if taken.last()? & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
        padded[..bytes].copy_from_slice(taken);
        Some(i64::from_le_bytes(padded))
    }

    fn text(&mut self, length: usize) -> Option<Vec<u8>> {
        self.take(length).map(<[u8]>::to_vec)
    }

    fn decimal(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.number(bytes).map(decimal)
    }
}

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn listpack(bytes: &[u8]) -> Elements {
    let mut block = Block(bytes);
    block.take(6)?;
    let mut elements = Vec::new();
    loop {
        let before = block.0.len();
        let first = block.byte()?;
        let element = match first {
            0xff => return Some(elements),
            0..=0x7f => decimal(first.into()),
            0x80..=0xbf => block.text(usize::from(first & 0x3f))?,
            0xc0..=0xdf => {
                let number = i64::from(first & 0x1f) << 8 | i64::from(block.byte()?);
                decimal(if number < 1 << 12 { number } else { number - (1 << 13) })
            }
            0xe0..=0xef => {
                let length = usize::from(first & 0x0f) << 8 | usize::from(block.byte()?);
                block.text(length)?
            }
            0xf0 => {
                let length = u32::from_le_bytes(block.array()?);
                block.text(length as usize)?
            }
            0xf1 => block.decimal(2)?,
            0xf2 => block.decimal(3)?,
            0xf3 => block.decimal(4)?,
            0xf4 => block.decimal(8)?,
            0xf5..=0xfe => return None,
        };
        elements.push(element);
        // Each element ends with its own length, for reading backwards.
        block.take(match before - block.0.len() {
            ..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        })?;
    }
}

pub(super) fn ziplist(bytes: &[u8]) -> Elements {
    let mut block = Block(bytes);
    block.take(10)?;
    let mut elements = Vec::new();
    loop {
        // The length of the element before, for reading backwards.
        match block.byte()? {
            0xff => return Some(elements),
            0xfe => drop(block.take(4)?),
            _ => {}
        }
        let first = block.byte()?;
        elements.push(match first {
            0..=0x3f => block.text(first.into())?,
            0x40..=0x7f => {
                let length = usize::from(first & 0x3f) << 8 | usize::from(block.byte()?);
                block.text(length)?
            }
            0x80..=0xbf => {
                let length = u32::from_be_bytes(block.array()?);
                block.text(length as usize)?
            }
            0xc0 => block.decimal(2)?,
            0xd0 => block.decimal(4)?,
            0xe0 => block.decimal(8)?,
            0xf0 => block.decimal(3)?,
            0xfe => block.decimal(1)?,
            0xf1..=0xfd => decimal(i64::from(first & 0x0f) - 1),
            _ => return None,
        });
    }
}

pub(super) fn integers(bytes: &[u8]) -> Elements {
    let mut block = Block(bytes);
    let width = u32::from_le_bytes(block.array()?) as usize;
    block.take(4)?;
    if !matches!(width, 2 | 4 | 8) || !block.0.len().is_multiple_of(width) {
        return None;
    }
    block.0.chunks(width).map(|chunk| Block(chunk).decimal(width)).collect()
}

pub(super) fn zipmap(bytes: &[u8]) -> Elements {
    let mut block = Block(bytes);
    block.take(1)?;
    let mut elements = Vec::new();
    while block.0.first()? != &0xff {
        let name = zipmap_length(&mut block)?;
        elements.push(block.text(name)?);
        let value = zipmap_length(&mut block)?;
        let unused = block.byte()?;
        elements.push(block.text(value)?);
        block.take(unused.into())?;
    }
    Some(elements)
}

fn zipmap_length(block: &mut Block<'_>) -> Option<usize> {
    match block.byte()? {
        254 => Some(u32::from_le_bytes(block.array()?) as usize),
        255 => None,
        length => Some(length.into()),
    }
}

/// Fields and their values.
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The fields of the entries in one block of a stream, except deleted entries.
pub(super) fn stream_entries(bytes: &[u8]) -> Option<Vec<Pairs>> {
    const DELETED: i64 = 1;
    const SAME_FIELDS: i64 = 2;
    let mut elements = listpack(bytes)?.into_iter();
    let mut next = || elements.next();
    let number = |element: Option<Vec<u8>>| String::from_utf8(element?).ok()?.parse::<i64>().ok();
    let (live, deleted) = (number(next())?, number(next())?);
    let fields = number(next())?;
    let fields: Vec<Vec<u8>> = (0..fields).map(|_| next()).collect::<Option<_>>()?;
    // The end of the first, artificial entry.
    next()?;
    let mut entries = Vec::new();
    for _ in 0..live.checked_add(deleted)? {
        let flags = number(next())?;
        // The id, relative to that of the block.
        next()?;
        next()?;
        let mut entry = Vec::new();
        if flags & SAME_FIELDS == 0 {
            for _ in 0..number(next())? {
                entry.push((next()?, next()?));
            }
        } else {
            for field in &fields {
                entry.push((field.clone(), next()?));
            }
        }
        // The number of elements, for reading backwards.
        next()?;
        if flags & DELETED == 0 {
            entries.push(entry);
        }
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(elements: Elements) -> Vec<String> {
        elements.unwrap().into_iter().map(|element| String::from_utf8(element).unwrap()).collect()
    }

    /// Redis 7 no longer writes these forms; the bytes follow the description in Redis's source.
    #[test]
    fn older_forms_are_read() {
        let ziplist_bytes = [
            &[0; 10][..],
            &[0, 2, b'a', b'b'],
            &[4, 0xc0, 0xff, 0xff],
            &[4, 0xf3],
            &[2, 0xfe, 0x80],
            &[3, 0xf0, 0x00, 0x00, 0x80],
            &[0xfe, 0, 0, 0, 0, 0xd0, 1, 0, 0, 0],
            &[0xff],
        ]
        .concat();
        assert_eq!(text(ziplist(&ziplist_bytes)), ["ab", "-1", "2", "-128", "-8388608", "1"]);
        assert_eq!(text(zipmap(&[1, 1, b'f', 2, 1, b'v', b'w', 0, 0xff])), ["f", "vw"]);
        assert_eq!(text(integers(&[2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0xfe, 0xff])), ["1", "-2"]);
    }

    #[test]
    fn damaged_blocks_are_refused() {
        let long_text = [0, 0, 0, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(listpack(&long_text), None);
        for bytes in [&[][..], &[0; 6], &[0xff; 5]] {
            assert_eq!(listpack(bytes), None, "{bytes:?}");
            assert_eq!(ziplist(bytes), None, "{bytes:?}");
            assert_eq!(zipmap(bytes).filter(|elements| !elements.is_empty()), None, "{bytes:?}");
            assert_eq!(integers(bytes), None, "{bytes:?}");
            assert_eq!(stream_entries(bytes), None, "{bytes:?}");
        }
    }
}
