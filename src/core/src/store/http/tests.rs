use super::*;
use crate::limit::Limit;
use crate::store::client::tests::store_with;
use crate::store::{Call, LimitCall};
use proptest::prelude::*;

const INTEGERS: &[u8] = b"*4\r\n:1\r\n:2\r\n:0\r\n:600\r\n";

fn wire(fields: &str) -> Wire {
    Wire::new(&store_with(fields))
}

const UPSTASH: &str = r#","transport":"upstash","path":"/redis","authority":"eu1.upstash.io","auth":{"value":"t0ken"}"#;
const WEBDIS: &str = r#","transport":"webdis","auth":{"value":"user:pass"}"#;
const CALL: &str = r#","transport":"redis-call""#;

fn header<'c>(call: &'c HttpCall, name: &str) -> Option<&'c str> {
    call.headers.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
}

fn text(call: &HttpCall) -> &str {
    std::str::from_utf8(&call.body).unwrap()
}

#[test]
fn upstash_is_asked_with_a_json_array_and_several_commands_go_together() {
    let (get, set) = (command(&[b"GET", b"a\"b/c"]), command(&[b"SET", b"k", b"\xc3\xa9"]));
    let one = wire(UPSTASH).request(std::slice::from_ref(&get), 50);
    assert_eq!((header(&one, ":path"), text(&one)), (Some("/redis/"), r#"["GET","a\"b/c"]"#));
    assert_eq!(header(&one, ":authority"), Some("eu1.upstash.io"));
    assert_eq!(header(&one, "authorization"), Some("Bearer t0ken"));
    let two = wire(UPSTASH).request(&[get, set], 50);
    assert_eq!((header(&two, ":path"), text(&two)), (Some("/redis/pipeline"), r#"[["GET","a\"b/c"],["SET","k","é"]]"#));
}

#[test]
fn webdis_is_asked_with_words_between_slashes_and_any_bytes_in_them() {
    let call = wire(WEBDIS).request(&[command(&[b"GET", b"a/b.c%\r\n\xff{}"])], 50);
    assert_eq!((header(&call, ":path"), text(&call)), (Some("/"), "GET/a%2Fb%2Ec%25%0D%0A%FF%7B%7D"));
    assert_eq!(header(&call, ":authority"), Some("c"), "the cluster's name");
    assert_eq!(header(&call, "authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[test]
fn a_raw_call_is_resp_with_the_password_before_it() {
    let ping = command(&[b"PING"]);
    assert_eq!(wire(CALL).request(&[ping.clone(), ping.clone()], 50).body, ping.repeat(2));
    let opened = wire(r#","transport":"redis-call","auth":{"value":"u:p"}"#);
    assert_eq!(opened.request(std::slice::from_ref(&ping), 50).body, [command(&[b"AUTH", b"u", b"p"]), ping].concat());
    assert_eq!(opened.replies(Some((200, &[b"+OK\r\n", INTEGERS].concat())), 1).unwrap().len(), 1);
    let wrong = opened.replies(Some((200, b"-WRONGPASS x\r\n-NOAUTH y\r\n")), 1);
    assert_eq!(wrong, Err(Failure::Error("WRONGPASS x".to_owned())));
}

#[test]
fn replies_are_read_from_each_form() {
    let integers = Ok(vec![Reply::Integers(vec![1, 2, 0, 600])]);
    assert_eq!(wire(CALL).replies(Some((200, INTEGERS)), 1), integers);
    assert_eq!(wire(WEBDIS).replies(Some((200, br#"{"EVALSHA":[1,2,0,600]}"#)), 1), integers);
    let told = wire(WEBDIS).replies(Some((200, br#"{"EVALSHA":[false,"NOSCRIPT No"]}"#)), 1);
    assert_eq!(told, Ok(vec![Reply::Error("NOSCRIPT No".to_owned())]));
    assert_eq!(wire(UPSTASH).replies(Some((200, br#"{"result":[1,2,0,600]}"#)), 1), integers);
    let pipeline = br#"[{"result":[1,2,0,600]},{"error":"NOSCRIPT No matching script"},{"result":["0","a","b"]}]"#;
    let noscript = Reply::Error("NOSCRIPT No matching script".to_owned());
    let texts = Reply::Texts(vec![b"0".to_vec(), b"a".to_vec(), b"b".to_vec()]);
    let wanted = vec![Reply::Integers(vec![1, 2, 0, 600]), noscript.clone(), texts];
    assert_eq!(wire(UPSTASH).replies(Some((200, pipeline)), 3), Ok(wanted));
    let single = br#"{"error":"NOSCRIPT No matching script"}"#;
    assert_eq!(wire(UPSTASH).replies(Some((400, single)), 1), Ok(vec![noscript]));
}

#[test]
fn whatever_else_comes_is_a_failure_or_no_verdict() {
    let all = [UPSTASH, WEBDIS, CALL];
    for wire in all.map(wire) {
        assert_eq!(wire.replies(None, 1), Err(Failure::Disconnected));
        for status in [201, 204, 301, 401, 403, 429, 500, 502, 503] {
            for body in [&b"{\"result\":[1,2,0,600]}"[..], INTEGERS, b"<html>", b""] {
                assert_eq!(wire.replies(Some((status, body)), 1), Err(Failure::Status(status)));
            }
        }
        for body in [&b""[..], b"<html>", b"null", b"[]", b"{}", b"*4\r\n:1\r\n", b"*1\r\n:1\r\n*1\r\n:1\r\n"] {
            assert!(wire.replies(Some((200, body)), 1).is_err(), "{:?}", String::from_utf8_lossy(body));
        }
    }
    for body in ["[1.5]", "[null]", "[1,\"2\"]", "[true]", "\"OK\"", "null", "7", "[[1]]", "[9223372036854775808]"] {
        let body = format!(r#"{{"result":{body}}}"#);
        assert_eq!(wire(WEBDIS).replies(Some((200, body.as_bytes())), 1), Ok(vec![Reply::Other]), "{body}");
        assert_eq!(wire(UPSTASH).replies(Some((200, body.as_bytes())), 1), Ok(vec![Reply::Other]), "{body}");
    }
    let quota = br#"{"error":"ERR max daily request limit exceeded"}"#;
    let told = Failure::Error("ERR max daily request limit exceeded".to_owned());
    assert_eq!(wire(UPSTASH).replies(Some((200, quota)), 2), Err(told));
}

#[test]
fn a_call_is_the_same_words_whatever_carries_it() {
    let limit = Limit::token_bucket(100, 60_000, 3).unwrap();
    let key = b"rl:{r:a.b/c}:tb:60000".to_vec();
    let call = Call::new(&[LimitCall { key, limit: &limit, cost: 2 }]).evalsha();
    let wanted: Vec<String> = words(&call).into_iter().map(|word| String::from_utf8(word.to_vec()).unwrap()).collect();
    assert_eq!(wanted[2..], ["1", "rl:{r:a.b/c}:tb:60000", "tb", "100", "60000", "3", "2"]);
    let upstash: Vec<String> = serde_json::from_slice(&wire(UPSTASH).request(std::slice::from_ref(&call), 1).body).unwrap();
    assert_eq!(upstash, wanted);
    let webdis = wire(WEBDIS).request(&[call], 1);
    let decoded = text(&webdis).split('/');
    let decoded: Vec<String> =
        decoded.map(|word| percent_encoding::percent_decode_str(word).decode_utf8().unwrap().into_owned()).collect();
    assert_eq!(decoded, wanted);
}

proptest! {
    #[test]
    fn words_come_out_as_they_went_in(given in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..8)) {
        let slices: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
        let command = command(&slices);
        prop_assert_eq!(words(&command), slices);
    }

    #[test]
    fn any_answer_is_read_or_refused(status in 100_u16..600, body in proptest::collection::vec(any::<u8>(), 0..100), cut in 0_usize..60) {
        for wire in [UPSTASH, WEBDIS, CALL].map(wire) {
            let _ = wire.replies(Some((status, &body)), 2);
            for whole in [INTEGERS, &b"[{\"result\":[1,2,0,600]},{\"error\":\"x\"}]"[..]] {
                let part = &whole[..cut.min(whole.len())];
                prop_assert!(part == whole || wire.replies(Some((200, part)), 2).is_err());
            }
        }
    }
}
