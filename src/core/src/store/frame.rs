//! gRPC's message frames: a flag byte and a four-byte big-endian length before each message.
//!
//! A filter can keep a gRPC stream open, but no plain one. The bridge takes the frames off on the way to Redis and puts one
//! on whatever comes back, so that Redis sees RESP alone.

/// The bytes of a frame before its message.
const HEADER: usize = 5;

/// The frame before a message of `size` bytes, uncompressed.
pub fn header(size: u32) -> [u8; HEADER] {
    let [a, b, c, d] = size.to_be_bytes();
    [0, a, b, c, d]
}

/// Takes frames off a stream of bytes that may be cut anywhere.
#[derive(Debug, Default)]
pub struct Unframer {
    header: Vec<u8>,
    left: usize,
}

impl Unframer {
    /// The messages' bytes among the next bytes of the stream.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.left == 0 {
                let (header, after) = rest.split_at(HEADER.saturating_sub(self.header.len()).min(rest.len()));
                self.header.extend_from_slice(header);
                rest = after;
                if let [_, a, b, c, d] = *self.header.as_slice() {
                    self.left = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                    self.header.clear();
                }
            } else {
                let (message, after) = rest.split_at(self.left.min(rest.len()));
                out.extend_from_slice(message);
                self.left = self.left.saturating_sub(message.len());
                rest = after;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_wherever_the_stream_is_cut(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8),
            cut in 1_usize..20,
        ) {
            let framed: Vec<u8> = messages.iter().flat_map(|message| {
                let mut frame = header(u32::try_from(message.len()).unwrap()).to_vec();
                frame.extend(message);
                frame
            }).collect();
            let mut unframer = Unframer::default();
            let out: Vec<u8> = framed.chunks(cut).flat_map(|chunk| unframer.take(chunk)).collect();
            prop_assert_eq!(out, messages.concat());
        }
    }
}
