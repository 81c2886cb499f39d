//! Bad configurations and every line that is said about them.

/// Whole configurations.
pub(super) const CONFIGURATIONS: &[(&str, &[&str])] = &[
    ("", &[r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#]),
    (
        " \n",
        &[r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#],
    ),
    ("{", &["configuration: neither JSON nor a protobuf Struct: EOF while parsing an object at line 1 column 1"]),
    ("[]", &["configuration: []: an object is wanted, with store, client_ip, exempt, block, response, rules"]),
    ("null", &["configuration: null: an object is wanted, with store, client_ip, exempt, block, response, rules"]),
    (r#""x""#, &[r#"configuration: "x": an object is wanted, with store, client_ip, exempt, block, response, rules"#]),
    ("{}", &["rules: missing; a list of 1 to 1000 rules is wanted"]),
    (
        r#"{"rules":[]}"#,
        &[r#"rules: []: a list of 1 to 1000 is wanted: rules, such as [{"name":"all","key":["ip"],"limits":["10/s"]}]"#],
    ),
    (
        r#"{"rules":{}}"#,
        &[r#"rules: {}: a list of 1 to 1000 is wanted: rules, such as [{"name":"all","key":["ip"],"limits":["10/s"]}]"#],
    ),
    (
        r#"{"rules":[1]}"#,
        &[
            "rules[0]: 1: an object is wanted, with name, select, match, when, key, limits, algorithm, cost, tiers, overrides, live_overrides, on_missing, on_error, local, mode, enforce_percent",
        ],
    ),
    (
        r#"{"rules":[{"name":"r","key":["ip"],"limits":["10/s"]}],"rules":[{"name":"r","key":["ip"],"limits":["10/s"]}]}"#,
        &[r#"configuration: neither JSON nor a protobuf Struct: the field "rules" is given twice at line 1 column 109"#],
    ),
    (
        r#"{"rules":[{"name":"r","key":["ip"],"limits":["10/s"]},{"name":"r","key":["ip"],"limits":["10/s"]}]}"#,
        &[r#"rules[1].name: "r": an earlier rule is named "r" too; names are unique"#],
    ),
    (
        r#"{"rules":[{}]}"#,
        &[
            "rules[0].name: missing; 1 to 64 of a-z, 0-9, _ and - are wanted",
            r#"rules[0].key: missing; a list of 1 to 8 key parts is wanted, such as ["ip"]"#,
            r#"rules[0].limits: missing; a list of 1 to 8 limits is wanted, such as ["10/s"]"#,
        ],
    ),
    (
        r#"{"rules":[{"name":"r","key":["ip"],"limits":[{"count":1e400,"window":"s"}]}]}"#,
        &["configuration: neither JSON nor a protobuf Struct: number out of range at line 1 column 59"],
    ),
    (
        r#"{"store":{"clutser":"c","timeout":"1h"},"response":{"status":1},"rules":[{"name":"A","key":["up"],"limits":["0/s"],"mode":"of"}]}"#,
        &[
            r#"store.clutser: "c": unknown field (did you mean "cluster"?); allowed: transport, cluster, timeout, key_prefix, scope, breaker"#,
            "store.cluster: missing; the name of the Envoy cluster that leads to Redis is wanted",
            r#"store.timeout: "1h": a duration from 1ms to 10s is wanted, such as 50ms or 1s"#,
            "response.status: 1: an integer from 400 to 599 is wanted",
            r#"rules[0].name: "A": 1 to 64 of a-z, 0-9, _ and - are wanted"#,
            r#"rules[0].key[0]: "up": the source "up" isn't known (did you mean "ip"?); allowed: header:NAME, cookie:NAME, query:NAME, ip, path, path:N, method, host, route, virtual_host, cluster, jwt:CLAIM, metadata:FILTER/KEY, filter_state:KEY, property:PATH/OF/IT, cel:EXPRESSION, const:TEXT"#,
            r#"rules[0].limits[0]: "0/s": a count of 0 would deny every request; allowed: 1 to 9007199254740991"#,
            r#"rules[0].mode: "of": not known here (did you mean "off"?); allowed: enforce, shadow, off"#,
        ],
    ),
];

/// Fields that are put into a good configuration.
pub(super) const FIELDS: &[(&str, &[&str])] = &[
    (
        r#"{"rulez":[{"name":"r","key":["ip"],"limits":["10/s"]}]}"#,
        &[
            r#"rulez: [{"key":["ip"],"limits":["10/s"],"name":"r"}]: unknown field (did you mean "rules"?); allowed: store, client_ip, exempt, block, response, rules"#,
        ],
    ),
    (r#"{"store":{}}"#, &["store.cluster: missing; the name of the Envoy cluster that leads to Redis is wanted"]),
    (r#"{"store":{"cluster":""}}"#, &[r#"store.cluster: "": the name of the Envoy cluster that leads to Redis is wanted"#]),
    (
        r#"{"store":{"cluster":"c","transport":"webdis"}}"#,
        &[r#"store.transport: "webdis": not known here (did you mean "redis"?); allowed: redis"#],
    ),
    (
        r#"{"store":{"cluster":"c","timeout":"0ms"}}"#,
        &[r#"store.timeout: "0ms": a duration from 1ms to 10s is wanted, such as 50ms or 1s"#],
    ),
    (
        r#"{"store":{"cluster":"c","timeout":"11s"}}"#,
        &[r#"store.timeout: "11s": a duration from 1ms to 10s is wanted, such as 50ms or 1s"#],
    ),
    (
        r#"{"store":{"cluster":"c","timeout":50}}"#,
        &["store.timeout: 50: a duration from 1ms to 10s is wanted, such as 50ms or 1s"],
    ),
    (
        r#"{"store":{"cluster":"c","timeout":"50"}}"#,
        &[r#"store.timeout: "50": a duration from 1ms to 10s is wanted, such as 50ms or 1s"#],
    ),
    (
        r#"{"store":{"cluster":"c","key_prefix":"a{b"}}"#,
        &[r#"store.key_prefix: "a{b": 1 to 32 of A-Z, a-z, 0-9, _, -, . and : are wanted"#],
    ),
    (
        r#"{"store":{"cluster":"c","key_prefix":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}"#,
        &[r#"store.key_prefix: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": 1 to 32 of A-Z, a-z, 0-9, _, -, . and : are wanted"#],
    ),
    (
        r#"{"store":{"cluster":"c","scope":"requests"}}"#,
        &[r#"store.scope: "requests": not known here (did you mean "request"?); allowed: request, rule"#],
    ),
    (
        r#"{"store":{"cluster":"c","breaker":{"failures":0}}}"#,
        &["store.breaker.failures: 0: an integer from 1 to 1000 is wanted"],
    ),
    (
        r#"{"store":{"cluster":"c","breaker":{"open":"2h"}}}"#,
        &[r#"store.breaker.open: "2h": a duration from 10ms to 1h is wanted, such as 50ms or 1s"#],
    ),
    (
        r#"{"store":{"cluster":"c","auth":{"value":"x"}}}"#,
        &[r#"store.auth: {"value":"x"}: unknown field; allowed: transport, cluster, timeout, key_prefix, scope, breaker"#],
    ),
    (
        r#"{"store":"redis"}"#,
        &[r#"store: "redis": an object is wanted, with transport, cluster, timeout, key_prefix, scope, breaker"#],
    ),
    (
        r#"{"store":null}"#,
        &["store: null: an object is wanted, with transport, cluster, timeout, key_prefix, scope, breaker"],
    ),
    (r#"{"response":{"status":200}}"#, &["response.status: 200: an integer from 400 to 599 is wanted"]),
    (r#"{"response":{"status":600}}"#, &["response.status: 600: an integer from 400 to 599 is wanted"]),
    (r#"{"response":{"body":1}}"#, &["response.body: 1: text is wanted: the body of a denied request's answer"]),
    (
        r#"{"response":{"content_type":"a\nb"}}"#,
        &[r#"response.content_type: "a\nb": a media type of visible ASCII is wanted, such as application/json"#],
    ),
    (
        r#"{"response":{"content_type":""}}"#,
        &[r#"response.content_type: "": a media type of visible ASCII is wanted, such as application/json"#],
    ),
    (
        r#"{"response":{"headers":["x-ratelimit"]}}"#,
        &[r#"response.headers[0]: "x-ratelimit": not known here (did you mean "ratelimit"?); allowed: ratelimit"#],
    ),
    (
        r#"{"response":{"headers":["ratelimit","ratelimit"]}}"#,
        &[r#"response.headers: ["ratelimit","ratelimit"]: a list of one is wanted: ratelimit, or [] for none"#],
    ),
    (
        r#"{"response":{"grpc_status":"X"}}"#,
        &[r#"response.grpc_status: "X": unknown field; allowed: status, body, content_type, headers"#],
    ),
    (
        r#"{"client_ip":{"trusted_hops":0,"ipv6_prefix":129}}"#,
        &[
            "client_ip.trusted_hops: 0: an integer from 1 to 100 is wanted",
            "client_ip.ipv6_prefix: 129: an integer from 1 to 128 is wanted",
            "client_ip.trusted_hops: 0: it goes with from: header",
        ],
    ),
    (r#"{"exempt":[{}]}"#, &["exempt[0]: {}: at least one condition is wanted: hosts, path, methods, headers, ip, not"]),
    (
        r#"{"block":[{"status":403}]}"#,
        &[r#"block[0]: {"status":403}: at least one condition is wanted: hosts, path, methods, headers, ip, not"#],
    ),
    (r#"{"block":[{"methods":["TRACE"],"status":200}]}"#, &["block[0].status: 200: an integer from 400 to 599 is wanted"]),
];

/// Fields that are put into the rule of a good configuration; the lines without their `rules[0].`.
pub(super) const RULE_FIELDS: &[(&str, &[&str])] = &[
    (r#"{"name":"R"}"#, &[r#"name: "R": 1 to 64 of a-z, 0-9, _ and - are wanted"#]),
    (
        r#"{"name":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
        &[
            r#"name: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": 1 to 64 of a-z, 0-9, _ and - are wanted"#,
        ],
    ),
    (r#"{"name":7}"#, &["name: 7: text is wanted: 1 to 64 of a-z, 0-9, _ and - are wanted"]),
    (r#"{"name":""}"#, &[r#"name: "": 1 to 64 of a-z, 0-9, _ and - are wanted"#]),
    (r#"{"key":[]}"#, &[r#"key: []: a list of 1 to 8 is wanted: key parts, such as ["header:x-api-key | ip"]"#]),
    (r#"{"key":"ip"}"#, &[r#"key: "ip": a list of 1 to 8 is wanted: key parts, such as ["header:x-api-key | ip"]"#]),
    (r#"{"key":[1]}"#, &["key[0]: 1: text is wanted: a source such as header:x-api-key, or alternatives with |"]),
    (
        r#"{"key":["hedaer:x"]}"#,
        &[
            r#"key[0]: "hedaer:x": the source "hedaer:x" isn't known (did you mean "header"?); allowed: header:NAME, cookie:NAME, query:NAME, ip, path, path:N, method, host, route, virtual_host, cluster, jwt:CLAIM, metadata:FILTER/KEY, filter_state:KEY, property:PATH/OF/IT, cel:EXPRESSION, const:TEXT"#,
        ],
    ),
    (r#"{"key":["header:"]}"#, &[r#"key[0]: "header:": header: wants a header's name, such as header:x-api-key"#]),
    (r#"{"key":["header:a b"]}"#, &[r#"key[0]: "header:a b": header: wants a header's name, such as header:x-api-key"#]),
    (
        r#"{"key":["ip|"]}"#,
        &[
            r#"key[0]: "ip|": the source "" isn't known; allowed: header:NAME, cookie:NAME, query:NAME, ip, path, path:N, method, host, route, virtual_host, cluster, jwt:CLAIM, metadata:FILTER/KEY, filter_state:KEY, property:PATH/OF/IT, cel:EXPRESSION, const:TEXT"#,
        ],
    ),
    (r#"{"key":["const:"]}"#, &[r#"key[0]: "const:": const: wants a text of 1 to 256 bytes, such as const:all"#]),
    (
        r#"{"key":["ip","ip","ip","ip","ip","ip","ip","ip","ip"]}"#,
        &[
            r#"key: ["ip","ip","ip","ip","ip","ip","ip","ip","ip"]: a list of 1 to 8 is wanted: key parts, such as ["header:x-api-key | ip"]"#,
        ],
    ),
    (r#"{"key":["ip|ip|ip|ip|ip|ip|ip|ip|ip"]}"#, &[r#"key[0]: "ip|ip|ip|ip|ip|ip|ip|ip|ip": 9 alternatives; allowed: 8"#]),
    (
        r#"{"key":["IP"]}"#,
        &[
            r#"key[0]: "IP": the source "IP" isn't known (did you mean "ip"?); allowed: header:NAME, cookie:NAME, query:NAME, ip, path, path:N, method, host, route, virtual_host, cluster, jwt:CLAIM, metadata:FILTER/KEY, filter_state:KEY, property:PATH/OF/IT, cel:EXPRESSION, const:TEXT"#,
        ],
    ),
    (r#"{"limits":[]}"#, &[r#"limits: []: a list of 1 to 8 is wanted: limits, such as ["10/s"]"#]),
    (
        r#"{"limits":["1/s","2/s","3/s","4/s","5/s","6/s","7/s","8/s","9/s"]}"#,
        &[
            r#"limits: ["1/s","2/s","3/s","4/s","5/s","6/s","7/s","8/s","9/s"]: a list of 1 to 8 is wanted: limits, such as ["10/s"]"#,
        ],
    ),
    (
        r#"{"limits":["10/min","1/s","20/60s"]}"#,
        &[r#"limits[2]: "20/60s": an earlier limit is a token_bucket of the same window; keep the stricter one"#],
    ),
    (
        r#"{"limits":["10/s burst 5 fixed_window"]}"#,
        &[
            r#"limits[0]: "10/s burst 5 fixed_window": a fixed_window has no burst; a burst goes with token_bucket, leaky_bucket"#,
        ],
    ),
    (
        r#"{"limits":[{"count":1,"window":"s","burst":2}],"algorithm":"sliding_log"}"#,
        &[
            r#"limits[0]: {"burst":2,"count":1,"window":"s"}: a sliding_log has no burst; a burst goes with token_bucket, leaky_bucket"#,
        ],
    ),
    (r#"{"limits":"10/s"}"#, &[r#"limits: "10/s": a list of 1 to 8 limits is wanted, such as ["10/s"], or unlimited"#]),
    (
        r#"{"limits":[10]}"#,
        &[r#"limits[0]: 10: a limit is wanted: text such as "10/s", or an object with count and window"#],
    ),
    (
        r#"{"limits":["10"]}"#,
        &[r#"limits[0]: "10": COUNT/WINDOW [burst N] [ALGORITHM] is wanted, such as 100/min or 20/s burst 40"#],
    ),
    (
        r#"{"limits":["0/s"]}"#,
        &[r#"limits[0]: "0/s": a count of 0 would deny every request; allowed: 1 to 9007199254740991"#],
    ),
    (r#"{"limits":["-1/s"]}"#, &[r#"limits[0]: "-1/s": the count "-1" isn't an integer from 1 to 9007199254740991"#]),
    (r#"{"limits":["1.5/s"]}"#, &[r#"limits[0]: "1.5/s": the count "1.5" isn't an integer from 1 to 9007199254740991"#]),
    (
        r#"{"limits":["9007199254740992/s"]}"#,
        &[r#"limits[0]: "9007199254740992/s": the count "9007199254740992" isn't an integer from 1 to 9007199254740991"#],
    ),
    (r#"{"limits":["10/m"]}"#, &[r#"limits[0]: "10/m": "m" could be a minute or a month; write "min""#]),
    (
        r#"{"limits":["10/month"]}"#,
        &[r#"limits[0]: "10/month": a month has no fixed length; write a number of days, at most 31d"#],
    ),
    (
        r#"{"limits":["10/mni"]}"#,
        &[
            r#"limits[0]: "10/mni": the window "mni" isn't known (did you mean "min"?); allowed: s, min, h, d, or a duration such as 250ms, 10s, 1h30m, from 1ms to 31d"#,
        ],
    ),
    (r#"{"limits":["10/32d"]}"#, &[r#"limits[0]: "10/32d": the window "32d" is out of range; allowed: 1ms to 31d"#]),
    (r#"{"limits":["10/0ms"]}"#, &[r#"limits[0]: "10/0ms": the window "0ms" is out of range; allowed: 1ms to 31d"#]),
    (
        r#"{"limits":["10/s burst"]}"#,
        &[r#"limits[0]: "10/s burst": the burst "" isn't an integer from 1 to 9007199254740991"#],
    ),
    (
        r#"{"limits":["10/s burst 0"]}"#,
        &[r#"limits[0]: "10/s burst 0": a burst of 0 admits nothing; allowed: 1 to 9007199254740991"#],
    ),
    (
        r#"{"limits":["10/s brust 5"]}"#,
        &[
            r#"limits[0]: "10/s brust 5": the algorithm "brust" isn't known; allowed: token_bucket, fixed_window, sliding_log, sliding_window, leaky_bucket"#,
        ],
    ),
    (
        r#"{"limits":["10/s token_buket"]}"#,
        &[
            r#"limits[0]: "10/s token_buket": the algorithm "token_buket" isn't known (did you mean "token_bucket"?); allowed: token_bucket, fixed_window, sliding_log, sliding_window, leaky_bucket"#,
        ],
    ),
    (
        r#"{"limits":["10/s token_bucket x"]}"#,
        &[r#"limits[0]: "10/s token_bucket x": "x" is too much; COUNT/WINDOW [burst N] [ALGORITHM] is wanted"#],
    ),
    (
        r#"{"limits":["unlimited"]}"#,
        &[r#"limits[0]: "unlimited": COUNT/WINDOW [burst N] [ALGORITHM] is wanted, such as 100/min or 20/s burst 40"#],
    ),
    (r#"{"limits":["1e3/s"]}"#, &[r#"limits[0]: "1e3/s": the count "1e3" isn't an integer from 1 to 9007199254740991"#]),
    (
        r#"{"limits":[{"count":0,"window":"s"}]}"#,
        &["limits[0].count: 0: a count of 0 would deny every request; allowed: 1 to 9007199254740991"],
    ),
    (
        r#"{"limits":[{"count":10.5,"window":"s"}]}"#,
        &["limits[0].count: 10.5: an integer from 1 to 9007199254740991 is wanted"],
    ),
    (
        r#"{"limits":[{"count":"10","window":"s"}]}"#,
        &[r#"limits[0].count: "10": an integer from 1 to 9007199254740991 is wanted"#],
    ),
    (
        r#"{"limits":[{"count":null,"window":"s"}]}"#,
        &["limits[0].count: null: an integer from 1 to 9007199254740991 is wanted"],
    ),
    (r#"{"limits":[{"count":-1,"window":"s"}]}"#, &["limits[0].count: -1: an integer from 1 to 9007199254740991 is wanted"]),
    (r#"{"limits":[{"window":"s"}]}"#, &["limits[0].count: missing; an integer of at least 1 is wanted"]),
    (r#"{"limits":[{"count":1}]}"#, &[r#"limits[0].window: missing; a window such as "min" or "10s" is wanted"#]),
    (r#"{"limits":[{"count":1,"window":5}]}"#, &[r#"limits[0].window: 5: text is wanted: a window such as "min" or "10s""#]),
    (
        r#"{"limits":[{"count":1,"window":"s","brust":2}]}"#,
        &[
            r#"limits[0].brust: 2: unknown field (did you mean "burst"?); allowed: count, window, burst, algorithm, max_delay"#,
        ],
    ),
    (
        r#"{"limits":[{"count":1,"window":"s","max_delay":"1s"}]}"#,
        &[
            r#"limits[0]: {"count":1,"max_delay":"1s","window":"s"}: a token_bucket has no max_delay; it goes with leaky_bucket"#,
        ],
    ),
    (
        r#"{"limits":[{"count":1,"window":"s","max_delay":"2h"}],"algorithm":"leaky_bucket"}"#,
        &[r#"limits[0].max_delay: "2h": a duration from 1ms to 1h is wanted, such as 50ms or 1s"#],
    ),
    (
        r#"{"algorithm":"gcra"}"#,
        &[
            r#"algorithm: "gcra": the algorithm "gcra" isn't known; allowed: token_bucket, fixed_window, sliding_log, sliding_window, leaky_bucket"#,
        ],
    ),
    (
        r#"{"algorithm":"token-bucket"}"#,
        &[
            r#"algorithm: "token-bucket": the algorithm "token-bucket" isn't known (did you mean "token_bucket"?); allowed: token_bucket, fixed_window, sliding_log, sliding_window, leaky_bucket"#,
        ],
    ),
    (r#"{"algorithm":1}"#, &["algorithm: 1: text is wanted: the name of an algorithm"]),
    (r#"{"cost":-1}"#, &["cost: -1: an integer from 0 to 2147483648 is wanted, or an object with from, default and max"]),
    (
        r#"{"cost":2147483649}"#,
        &["cost: 2147483649: an integer from 0 to 2147483648 is wanted, or an object with from, default and max"],
    ),
    (
        r#"{"cost":"1"}"#,
        &[r#"cost: "1": an integer from 0 to 2147483648 is wanted, or an object with from, default and max"#],
    ),
    (r#"{"on_missing":"ignore"}"#, &[r#"on_missing: "ignore": not known here; allowed: skip, deny"#]),
    (r#"{"on_error":"fail"}"#, &[r#"on_error: "fail": not known here; allowed: local, allow, deny"#]),
    (r#"{"on_error":"Deny"}"#, &[r#"on_error: "Deny": not known here (did you mean "deny"?); allowed: local, allow, deny"#]),
    (r#"{"mode":true}"#, &["mode: true: not known here; allowed: enforce, shadow, off"]),
    (r#"{"local":{"share":0}}"#, &["local.share: 0: a number above 0 and at most 1 is wanted"]),
    (r#"{"local":{"share":1.5}}"#, &["local.share: 1.5: a number above 0 and at most 1 is wanted"]),
    (r#"{"local":{"share":"0.5"}}"#, &[r#"local.share: "0.5": a number above 0 and at most 1 is wanted"#]),
    (r#"{"local":1}"#, &["local: 1: an object is wanted, with share"]),
    (r#"{"local":{"shares":1}}"#, &[r#"local.shares: 1: unknown field (did you mean "share"?); allowed: share"#]),
    (r#"{"match":{"path":{}}}"#, &["match.path: {}: one of exact, prefix, regex and template is wanted"]),
    (
        r#"{"match":{"path":{"exact":"/a","prefix":"/b"}}}"#,
        &[r#"match.path: {"exact":"/a","prefix":"/b"}: one of exact, prefix, regex and template is wanted"#],
    ),
    (
        r#"{"match":{"path":{"exact":"a"}}}"#,
        &[r#"match.path.exact: "a": a path that begins with / is wanted, without query or fragment"#],
    ),
    (
        r#"{"match":{"path":{"prefix":"/a?b"}}}"#,
        &[r#"match.path.prefix: "/a?b": a path that begins with / is wanted, without query or fragment"#],
    ),
    (r#"{"match":{"path":"/a"}}"#, &[r#"match.path: "/a": an object is wanted, with exact, prefix, regex, template"#]),
    (
        r#"{"match":{"methods":["get"]}}"#,
        &[r#"match.methods[0]: "get": methods are told apart by case (did you mean "GET"?)"#],
    ),
    (r#"{"match":{"methods":[]}}"#, &[r#"match.methods: []: a list of 1 to 1000 is wanted: methods, such as ["GET"]"#]),
    (r#"{"match":{"methods":["G ET"]}}"#, &[r#"match.methods[0]: "G ET": a method such as GET is wanted"#]),
    (
        r#"{"match":{"hosts":["a:80"]}}"#,
        &[r#"match.hosts[0]: "a:80": a host name or address without a port is wanted, or *. and a domain"#],
    ),
    (r#"{"match":[]}"#, &["match: []: an object is wanted, with hosts, path, methods, headers, ip, not"]),
    (
        r#"{"limit":["10/s"]}"#,
        &[
            r#"limit: ["10/s"]: unknown field (did you mean "limits"?); allowed: name, select, match, when, key, limits, algorithm, cost, tiers, overrides, live_overrides, on_missing, on_error, local, mode, enforce_percent"#,
        ],
    ),
    (r#"{"select":"routes"}"#, &[r#"select: "routes": not known here (did you mean "route"?); allowed: always, route"#]),
    (r#"{"mode":true}"#, &["mode: true: not known here; allowed: enforce, shadow, off"]),
    (r#"{"enforce_percent":101}"#, &["enforce_percent: 101: an integer from 0 to 100 is wanted"]),
    (r#"{"when":" "}"#, &[r#"when: " ": a CEL expression of 1 to 4096 bytes is wanted, such as request.size < 1000"#]),
    (
        r#"{"match":{"path":{"regex":"("}}}"#,
        &[r#"match.path.regex: "(": no regular expression: found open group without closing ')'"#],
    ),
    (r#"{"match":{"path":{"template":"/a/**/b"}}}"#, &[r#"match.path.template: "/a/**/b": ** stands at the end only"#]),
    (r#"{"match":{"path":{"template":"/a*"}}}"#, &[r#"match.path.template: "/a*": * stands for a whole segment"#]),
    (
        r#"{"match":{"ip":["10.0.0.1/8"]}}"#,
        &[r#"match.ip[0]: "10.0.0.1/8": it has bits behind its prefix (did you mean "10.0.0.0/8"?)"#],
    ),
    (r#"{"match":{"not":{}}}"#, &["match.not: {}: at least one condition is wanted: hosts, path, methods, headers, ip"]),
    (r#"{"match":{"headers":[{}]}}"#, &["match.headers[0].name: missing; a header's name is wanted, such as x-plan"]),
    (
        r#"{"match":{"headers":[{"name":"a","exact":"b","prefix":"c"}]}}"#,
        &[
            r#"match.headers[0]: {"exact":"b","name":"a","prefix":"c"}: at most one of exact, prefix, suffix, regex and present is wanted"#,
        ],
    ),
    (r#"{"match":{"headers":[{"name":"a","invert":1}]}}"#, &["match.headers[0].invert: 1: true or false is wanted"]),
    (r#"{"key":["path:0"]}"#, &[r#"key[0]: "path:0": path: wants a segment's place from 1 to 100, such as path:1"#]),
    (r#"{"key":["cookie:a b"]}"#, &[r#"key[0]: "cookie:a b": cookie: wants a cookie's name, such as cookie:sid"#]),
    (r#"{"key":["jwt:"]}"#, &[r#"key[0]: "jwt:": jwt: wants a claim's name, such as jwt:sub"#]),
    (
        r#"{"key":["metadata:a"]}"#,
        &[
            r#"key[0]: "metadata:a": metadata: wants a filter's name and a key, such as metadata:envoy.filters.http.jwt_authn/payload/sub"#,
        ],
    ),
    (r#"{"cost":{"default":1}}"#, &["cost.from: missing; a source is wanted, such as header:x-cost"]),
    (
        r#"{"tiers":{}}"#,
        &[
            "tiers.by: missing; a source is wanted, such as jwt:plan",
            r#"tiers.values: missing; tiers and their limits are wanted, such as {"pro":["100/s"]}"#,
        ],
    ),
    (
        r#"{"tiers":{"by":"jwt:plan","values":{"free":["0/s"]}}}"#,
        &[r#"tiers.values.free[0]: "0/s": a count of 0 would deny every request; allowed: 1 to 9007199254740991"#],
    ),
    (
        r#"{"overrides":{"a b":["1/s"]}}"#,
        &[r#"overrides.a b: ["1/s"]: no subject; one is written as in logs and Redis keys, with %20 for a space"#],
    ),
    (r#"{"live_overrides":{}}"#, &["live_overrides: {}: they are kept in Redis, and there is no store"]),
];
