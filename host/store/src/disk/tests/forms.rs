//! A cache file of each form, as it was written by the release that had it: a roll-back or an upgrade without the API server reads
//! what is there. `WEIR_UPDATE_FORMS=1` writes that of the present form, once; it never changes after that.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::*;
use crate::disk::config::FORMS;
use crate::disk::{CachedValue, DiskCache};

const FILE: &str = "watch-cache.redb";
const VALUE: &str = "configuration/kube-system/weir-filters";

fn contract(form: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contract/cache").join(format!("form-{form}"))
}

/// Writes what each form has: a plain store with a change and a deletion, an encrypted one, and a value.
async fn write(directory: &Path) {
    let services = store(&["a", "b", "c"]);
    let cache = DiskCache::new(DiskConfig::new(&directory.join("cache"), "edge-a"), Arc::default());
    let _plain = cache.persist(name("services"), services.clone(), Confidentiality::Plain);
    let _sealed = cache.persist(name("secrets"), store(&["s"]), Confidentiality::Encrypted);
    cache.put(VALUE, CachedValue::lasting(b"{}".to_vec()), false).await;
    cache.confirm_cluster("uid".to_owned()).await;
    cache.flush().await;
    put(&services, "a", 7);
    services.apply(vec![Delta::Remove(StoreKey::new("default", "b"), 8)]);
    cache.close().await;
}

#[tokio::test]
async fn a_cache_of_each_form_is_read() {
    let own = contract(FORMS[0].format);
    if std::env::var_os("WEIR_UPDATE_FORMS").is_some() && !own.exists() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).await;
        std::fs::create_dir_all(&own).unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&std::fs::read(folder.path().join("cache").join(FILE)).unwrap()).unwrap();
        std::fs::write(own.join("watch-cache.redb.gz"), packed.finish().unwrap()).unwrap();
        std::fs::copy(folder.path().join("cache.key"), own.join("cache.key")).unwrap();
    }
    assert!(own.exists(), "the present form has a file: WEIR_UPDATE_FORMS=1 writes it");
    for form in std::fs::read_dir(own.parent().unwrap()).unwrap() {
        let form = form.unwrap().path();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cache")).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(&std::fs::read(form.join("watch-cache.redb.gz")).unwrap()[..]).read_to_end(&mut bytes).unwrap();
        std::fs::write(folder.path().join("cache").join(FILE), bytes).unwrap();
        let key = folder.path().join("cache.key");
        std::fs::copy(form.join("cache.key"), &key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();

        let cache = DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "edge-a"), Arc::default());
        let services = cache.restore(&name("services"), Confidentiality::Plain).await.expect("the store is read");
        let expected = [("a", 7, "a at 7"), ("c", 3, "c")];
        let expected: Model = expected
            .map(|(name, version, text)| {
                (StoreKey::new("default", name), (version, Bytes::from_static(text.as_bytes())))
            })
            .into();
        assert_eq!((model(&services), services.version), (expected, 8), "{}", form.display());
        let secrets = cache.restore(&name("secrets"), Confidentiality::Encrypted).await.expect("the sealed one, too");
        assert_eq!(model(&secrets).len(), 1);
        assert_eq!(cache.get(VALUE).await.map(|value| value.bytes), Some(b"{}".to_vec()));
        assert_eq!(cache.cluster().await.as_deref(), Some("uid"));
        cache.close().await;
        // Nothing was set aside for not fitting.
        let files = std::fs::read_dir(folder.path().join("cache")).unwrap().count();
        assert_eq!(files, 1, "{}", form.display());
    }
}
