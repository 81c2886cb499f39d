//! The second role, between the stream and Redis.

use super::*;

/// A gRPC frame.
fn frame(message: &[u8]) -> Vec<u8> {
    let size = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &size[..], message].concat()
}

pub(crate) fn the_bridge_takes_frames_off_and_puts_them_on<V: Vm>() {
    let (mut worker, configured) = Worker::<V>::configure(Host::new(&Arc::default(), "weir.bridge", ""));
    assert!(configured, "it needs no configuration");
    let framed = [frame(b"*1\r\n$4\r\nPING\r\n"), frame(b""), frame(&[b'x'; 300]), frame(b"end")].concat();
    let plain = [b"*1\r\n$4\r\nPING\r\n".as_slice(), &[b'x'; 300], b"end"].concat();
    for cut in 1..=framed.len() {
        let id = worker.request(&[]);
        let mut out = Vec::new();
        for chunk in framed.chunks(cut) {
            worker.vm.host(|host| host.requests.get_mut(&id).unwrap().body = chunk.to_vec());
            worker.enter("proxy_on_request_body", id, &[u32::try_from(chunk.len()).unwrap(), 0]);
            out.extend(worker.vm.host(|host| host.requests[&id].body.clone()));
        }
        assert_eq!(out, plain, "cut every {cut} bytes");
        worker.vm.host(|host| host.requests.get_mut(&id).unwrap().body = b":1\r\n".to_vec());
        worker.enter("proxy_on_response_body", id, &[4, 0]);
        assert_eq!(worker.vm.host(|host| host.requests[&id].body.clone()), frame(b":1\r\n"));
        worker.gone(id);
    }
}
