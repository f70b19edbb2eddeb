//! Certificates and kubeconfigs of one cluster, made fresh for each so that no client of one cluster
//! can ever talk to another.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;

/// The files under `<cluster>/pki` and what the client needs to know of them.
pub(crate) struct Pki {
    dir: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("could not make the certificate of {name}")]
    Certificate { name: String, source: rcgen::Error },
    #[error("could not write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

/// A user of the API: the name of its files, and whom the server sees.
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    common_name: &'a str,
    group: Option<&'a str>,
}

/// The group whose members may do everything.
pub const ADMINS: &str = "system:masters";

impl<'a> Identity<'a> {
    pub(crate) const fn admin(name: &'a str) -> Self {
        Self::member(name, ADMINS)
    }

    pub(crate) const fn member(name: &'a str, group: &'a str) -> Self {
        Self { name, common_name: name, group: Some(group) }
    }
}

pub(crate) const ADMIN: Identity<'_> = Identity::admin("admin");
pub(crate) const CONTROLLER_MANAGER: Identity<'_> = Identity {
    name: "controller-manager",
    common_name: "system:kube-controller-manager",
    group: None,
};
pub(crate) const SCHEDULER: Identity<'_> =
    Identity { name: "scheduler", common_name: "system:kube-scheduler", group: None };
/// kwok stands in for every kubelet at once. As a cluster admin it is exempt from API priority and
/// fairness, so that a load test measures Kerf and not kwok's queueing.
pub(crate) const KWOK: Identity<'_> = Identity::admin("kwok");

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Pki {
    /// Writes all keys and certificates below `dir`.
    pub(crate) fn create(dir: PathBuf) -> Result<Self, PkiError> {
        fs::create_dir_all(&dir).map_err(|source| PkiError::Write { path: dir.clone(), source })?;
        let authority = certificate_authority().map_err(|source| PkiError::Certificate {
            name: "the certificate authority".into(),
            source,
        })?;
        let pki = Self { dir, authority };
        pki.write("ca.crt", &pki.authority.pem())?;
        pki.write("ca.key", &pki.authority.key().serialize_pem())?;

        pki.issue("server", server_params)?;
        for identity in [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK] {
            pki.issue_client(&identity)?;
        }

        let tokens = KeyPair::generate().map_err(|source| PkiError::Certificate {
            name: "the service account signer".into(),
            source,
        })?;
        pki.write("service-accounts.key", &tokens.serialize_pem())?;
        pki.write("service-accounts.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    pub(crate) fn ca_der(&self) -> &[u8] {
        self.authority.der()
    }

    pub(crate) fn issue_client(&self, identity: &Identity<'_>) -> Result<(), PkiError> {
        self.issue(identity.name, || Ok(client_params(identity)))
    }

    /// A kubeconfig that refers to the certificate files, so it stays valid as long as the cluster.
    pub(crate) fn write_kubeconfig(
        &self,
        path: &Path,
        server: &str,
        identity: &Identity<'_>,
    ) -> Result<(), PkiError> {
        // kubeconfig is YAML, and JSON is YAML.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kerf", "cluster": {
                "server": server,
                "certificate-authority": self.path("ca.crt"),
            }}],
            "users": [{"name": identity.name, "user": {
                "client-certificate": self.path(&format!("{}.crt", identity.name)),
                "client-key": self.path(&format!("{}.key", identity.name)),
            }}],
            "contexts": [{"name": "kerf", "context": {"cluster": "kerf", "user": identity.name}}],
            "current-context": "kerf",
        });
        fs::write(path, format!("{config:#}\n"))
            .map_err(|source| PkiError::Write { path: path.to_owned(), source })
    }

    fn issue(
        &self,
        name: &str,
        params: impl FnOnce() -> Result<CertificateParams, rcgen::Error>,
    ) -> Result<(), PkiError> {
        let issued = params().and_then(|params| {
            let key = KeyPair::generate()?;
            let certificate = valid_now(params).signed_by(&key, &self.authority)?;
            Ok((certificate, key))
        });
        let (certificate, key) =
            issued.map_err(|source| PkiError::Certificate { name: name.to_owned(), source })?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn write(&self, file: &str, pem: &str) -> Result<(), PkiError> {
        let path = self.path(file);
        fs::write(&path, pem).map_err(|source| PkiError::Write { path, source })
    }
}

fn certificate_authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "kerf-control-plane");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    CertifiedIssuer::self_signed(valid_now(params), KeyPair::generate()?)
}

/// One certificate for every component that serves: they differ only in their port.
fn server_params() -> Result<CertificateParams, rcgen::Error> {
    let names = ["127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"];
    let mut params = CertificateParams::new(names.map(String::from))?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn client_params(identity: &Identity<'_>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, identity.common_name);
    if let Some(group) = identity.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Valid whatever the machine's clock says: a cluster lives for minutes, not long enough to expire.
fn valid_now(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    params
}
