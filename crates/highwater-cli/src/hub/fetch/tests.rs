//! A hub of this process's own, on a port of this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

#[derive(Default)]
struct Served {
    files: BTreeMap<String, Vec<u8>>,
    /// What was asked for, with the first byte.
    asked: Vec<(String, u64)>,
    tokens: Vec<String>,
    /// Ends an answer after so many bytes, once.
    cut: Option<usize>,
}

struct Server {
    endpoint: String,
    served: Arc<Mutex<Served>>,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a server needs a thread")]
    fn start(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let names = files
            .iter()
            .map(|(name, _)| serde_json::json!({"rfilename": name}));
        let names: Vec<_> = names.collect();
        let about = serde_json::json!({"sha": COMMIT, "siblings": names}).to_string();
        let mut all = BTreeMap::from([(
            "/api/models/org/m/revision/main".to_owned(),
            about.into_bytes(),
        )]);
        for (name, bytes) in files {
            all.insert(format!("/org/m/resolve/{COMMIT}/{name}"), bytes.to_vec());
        }
        let served = Served {
            files: all,
            ..Served::default()
        };
        let served = Arc::new(Mutex::new(served));
        let mine = served.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let _ = answer(stream, &mine);
            }
        });
        Self { endpoint, served }
    }

    fn hub(&self, cache: &Path) -> Hub {
        Hub::new(&self.endpoint, Some("secret".to_owned()), cache.to_owned())
    }

    fn asked(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.served.lock().unwrap().asked)
    }
}

fn answer(mut stream: TcpStream, served: &Mutex<Served>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap()?;
    let path = first.split(' ').nth(1).unwrap().to_owned();
    let mut from = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        }
        if let Some(token) = line.strip_prefix("authorization: ") {
            served.lock().unwrap().tokens.push(token.to_owned());
        }
    }
    let mut served = served.lock().unwrap();
    served
        .asked
        .push((path.rsplit('/').next().unwrap().to_owned(), from));
    let Some(bytes) = served.files.get(&path).cloned() else {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    };
    let whole = bytes.len();
    if from > 0 && from as usize >= whole {
        return write!(
            stream,
            "HTTP/1.1 416 Range\r\ncontent-range: bytes */{whole}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let bytes = &bytes[from as usize..];
    let status = if from > 0 {
        "206 Partial Content"
    } else {
        "200 OK"
    };
    let length = bytes.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\ncontent-range: bytes {from}-{end}/{whole}\r\n\
         connection: close\r\n\r\n",
        end = whole - 1
    )?;
    let end = match served.cut.filter(|&cut| cut < length) {
        Some(cut) => {
            served.cut = None;
            cut
        }
        None => length,
    };
    stream.write_all(&bytes[..end])
}

fn name() -> Name {
    Name {
        repository: "org/m".to_owned(),
        revision: "main".to_owned(),
    }
}

#[test]
fn a_model_is_fetched_once_and_goes_on_where_it_was_cut() {
    let weights: Vec<u8> = (0..100_000_u32).map(|i| (i * 7) as u8).collect();
    let server = Server::start(&[
        ("config.json", b"{}"),
        ("README.md", b"not wanted"),
        ("pytorch_model.bin", b"neither"),
        ("model.safetensors", &weights),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let hub = server.hub(dir.path());
    let folder = hub.settings(&name()).unwrap();
    assert_eq!(
        folder,
        dir.path().join("models--org--m/snapshots").join(COMMIT)
    );
    let of = |names: &[(&str, u64)]| {
        names
            .iter()
            .map(|(name, from)| ((*name).to_owned(), *from))
            .collect::<Vec<_>>()
    };
    assert_eq!(server.asked(), of(&[("main", 0), ("config.json", 0)]));
    assert!(!has_weights(&folder));
    let commit = Name::of_folder(&folder).unwrap();
    assert_eq!(
        commit,
        Name {
            revision: COMMIT.to_owned(),
            ..name()
        }
    );

    server.served.lock().unwrap().cut = Some(30_000);
    let error = hub.weights(&commit, &folder).unwrap_err().to_string();
    assert!(error.contains("model.safetensors"), "{error}");
    assert!(!has_weights(&folder));
    hub.weights(&commit, &folder).unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].1, asked[1].1), (0, 30_000));
    assert!(std::fs::read(folder.join("model.safetensors")).unwrap() == weights);
    assert!(has_weights(&folder));

    // One that was whole but for its name is not fetched again.
    let path = folder.join("model.safetensors");
    std::fs::rename(&path, folder.join("model.safetensors.incomplete")).unwrap();
    hub.weights(&commit, &folder).unwrap();
    assert!(std::fs::read(&path).unwrap() == weights);
    server.asked();

    // A commit that is there is not asked for, a branch is; and where nobody answers what is there has to do.
    assert_eq!(hub.settings(&commit).unwrap(), folder);
    assert_eq!(server.asked(), []);
    assert_eq!(hub.settings(&name()).unwrap(), folder);
    assert_eq!(server.asked(), of(&[("main", 0)]));
    let gone = Hub::new("http://127.0.0.1:9", None, dir.path().to_owned());
    assert_eq!(gone.settings(&name()).unwrap(), folder);
    let other = Name {
        repository: "org/other".to_owned(),
        ..name()
    };
    assert!(gone.settings(&other).is_err());
    let tokens = server.served.lock().unwrap().tokens.clone();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == "bearer secret"));
}

#[test]
fn what_cannot_be_had_is_told() {
    let server = Server::start(&[("config.json", b"{}")]);
    let dir = tempfile::tempdir().unwrap();
    let hub = server.hub(dir.path());
    let missing = hub
        .settings(&Name {
            revision: "v9".to_owned(),
            ..name()
        })
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("hf:org/m@v9") && missing.contains("404"),
        "{missing}"
    );
    let folder = hub.settings(&name()).unwrap();
    let commit = Name::of_folder(&folder).unwrap();
    let missing = hub.weights(&commit, &folder).unwrap_err().to_string();
    assert!(missing.contains("model.safetensors"), "{missing}");
}

#[test]
fn files_that_an_index_names_stay_in_the_folder() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let server = Server::start(&[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", b"one"),
        ("model-2.safetensors", b"two"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let hub = server.hub(dir.path());
    let folder = hub.settings(&name()).unwrap();
    hub.weights(&Name::of_folder(&folder).unwrap(), &folder)
        .unwrap();
    assert_eq!(
        std::fs::read(folder.join("model-2.safetensors")).unwrap(),
        b"two"
    );
    assert!(has_weights(&folder));

    for hostile in [
        "../../../x.safetensors",
        "/etc/x.safetensors",
        ".hidden.safetensors",
        "model.bin",
    ] {
        let index = serde_json::json!({"weight_map": {"a": hostile}}).to_string();
        std::fs::write(folder.join(INDEX), index).unwrap();
        let error = hub.weights(&name(), &folder).unwrap_err().to_string();
        assert!(error.contains("not a weights file"), "{error}");
    }
}
