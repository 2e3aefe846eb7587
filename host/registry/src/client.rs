//! One repository at one address of its registry.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderValue;
use oci_client::client::{BlobResponse, Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::manifest::OciImageIndex;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::AsyncWriteExt as _;
use weir_runtime::Digest;

use crate::credentials::Login;
use crate::error::{Problem, RegistryError};
use crate::hosts::Endpoint;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a registry may send nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// The manifests that are asked for.
const MANIFESTS: [&str; 4] = [
    oci_client::manifest::OCI_IMAGE_MEDIA_TYPE,
    oci_client::manifest::OCI_IMAGE_INDEX_MEDIA_TYPE,
    oci_client::manifest::IMAGE_MANIFEST_MEDIA_TYPE,
    oci_client::manifest::IMAGE_MANIFEST_LIST_MEDIA_TYPE,
];

/// One repository at one address.
pub(crate) struct Repository {
    client: Client,
    host: String,
    name: String,
    auth: RegistryAuth,
}

/// The name of a manifest.
#[derive(Debug, Clone)]
pub(crate) enum ManifestName {
    Digest(Digest),
    Tag(String),
}

impl Repository {
    pub(crate) fn new(endpoint: &Endpoint, name: &str, login: Option<&Login>) -> Result<Self, RegistryError> {
        // Another provider may be built in for other libraries; this one is the daemon's.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let host = endpoint.host.clone();
        let invalid =
            |reason: String| Problem::Other(format!("its certificate authority: {reason}")).at(&endpoint.host);
        let mut authorities = Vec::new();
        if let Some(pem) = &endpoint.certificate_authority {
            for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let der = der.map_err(|error| invalid(error.to_string()))?;
                authorities.push(Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() });
            }
            if authorities.is_empty() {
                return Err(invalid("no certificate".to_owned()));
            }
        }
        let config = ClientConfig {
            protocol: if endpoint.plain_http { ClientProtocol::Http } else { ClientProtocol::Https },
            tls_certs_only: authorities,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(SILENCE),
            user_agent: concat!("weir/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| Problem::of(error, "", false).at(&host))?;
        let auth = match login {
            Some(Login { user, password }) => RegistryAuth::Basic(user.clone(), password.clone()),
            None => RegistryAuth::Anonymous,
        };
        Ok(Self { client, host, name: name.to_owned(), auth })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    fn reference(&self, name: &ManifestName) -> Reference {
        match name {
            ManifestName::Digest(digest) => {
                Reference::with_digest(self.host.clone(), self.name.clone(), digest.to_string())
            }
            ManifestName::Tag(tag) => Reference::with_tag(self.host.clone(), self.name.clone(), tag.clone()),
        }
    }

    fn failed<'a>(&'a self, what: &'a str) -> impl Fn(oci_client::errors::OciDistributionError) -> Problem + 'a {
        move |error| Problem::of(error, what, self.auth != RegistryAuth::Anonymous)
    }

    /// Reads a manifest. One that is named by its digest has it.
    pub(crate) async fn manifest(&self, name: &ManifestName) -> Result<Bytes, Problem> {
        let what = match name {
            ManifestName::Digest(digest) => digest.to_string(),
            ManifestName::Tag(tag) => format!("{}:{tag}", self.name),
        };
        let read = self.client.pull_manifest_raw(&self.reference(name), &self.auth, &MANIFESTS).await;
        let (bytes, _) = read.map_err(self.failed(&what))?;
        match name {
            ManifestName::Digest(digest) if Digest::of(&bytes) != *digest => Err(Problem::digest(*digest)),
            _ => Ok(bytes),
        }
    }

    /// Reads what refers to an artifact: signatures, if their tools use the referrers of OCI 1.1.
    pub(crate) async fn referrers(&self, artifact: Digest) -> Result<OciImageIndex, Problem> {
        let what = format!("referrers of {artifact}");
        self.client.store_auth_if_needed(&self.host, &self.auth).await;
        let read = self.client.pull_referrers(&self.reference(&ManifestName::Digest(artifact)), None).await;
        read.map_err(self.failed(&what))
    }

    /// Reads a blob into a file, which may have the beginning of it. Returns the blob, which has its digest.
    pub(crate) async fn blob(
        &self,
        digest: Digest,
        size: u64,
        part: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Bytes, Problem> {
        let what = digest.to_string();
        let mut file = tokio::fs::File::options().create(true).append(true).open(part).await?;
        let mut got = file.metadata().await?.len();
        if got > size {
            file.set_len(0).await?;
            got = 0;
        }
        if got < size {
            self.client.store_auth_if_needed(&self.host, &self.auth).await;
            let image = self.reference(&ManifestName::Digest(digest));
            let response = self.client.pull_blob_stream_partial(&image, what.as_str(), got, None).await;
            let mut stream = match response.map_err(self.failed(&what))? {
                BlobResponse::Partial(stream) => stream,
                BlobResponse::Full(stream) => {
                    file.set_len(0).await?;
                    got = 0;
                    stream
                }
            };
            let mut ended = "the connection was closed".to_owned();
            while let Some(chunk) = stream.next().await {
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    Err(error) => {
                        ended = crate::error::chain(&error);
                        break;
                    }
                };
                got += chunk.len() as u64;
                if got > size {
                    tokio::fs::remove_file(part).await?;
                    return Err(Problem::TooLong(size));
                }
                file.write_all(&chunk).await?;
                progress(got, size);
            }
            file.flush().await?;
            if got < size {
                return Err(Problem::Truncated(got, size, ended));
            }
        }
        let blob = Bytes::from(tokio::fs::read(part).await?);
        tokio::fs::remove_file(part).await?;
        if Digest::of(&blob) == digest { Ok(blob) } else { Err(Problem::digest(digest)) }
    }

    /// Sends a blob, unless the registry has it.
    pub(crate) async fn push_blob(&self, digest: &Digest, blob: Bytes) -> Result<(), Problem> {
        self.client.store_auth_if_needed(&self.host, &self.auth).await;
        let image = self.reference(&ManifestName::Digest(*digest));
        let what = digest.to_string();
        // A registry that wants a credential says so when the blob is sent.
        if self.client.blob_exists(&image, &what).await.unwrap_or(false) {
            return Ok(());
        }
        self.client.push_blob(&image, blob, &what).await.map(drop).map_err(self.failed(&what))
    }

    pub(crate) async fn push_manifest(
        &self,
        name: &ManifestName,
        media_type: &str,
        manifest: Bytes,
    ) -> Result<(), Problem> {
        self.client.store_auth_if_needed(&self.host, &self.auth).await;
        let what = format!("{name:?}");
        let media_type = HeaderValue::from_str(media_type).map_err(|error| Problem::Other(error.to_string()))?;
        let pushed = self.client.push_manifest_raw(&self.reference(name), manifest, media_type).await;
        pushed.map(drop).map_err(self.failed(&what))
    }
}
