package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// identity is a client of the API server, with a client certificate or a token.
type identity struct {
	name   string
	user   string
	groups []string
}

// identities get the files NAME.kubeconfig (certificate), NAME-cut.kubeconfig (the same through the proxy that can cut
// connections) and NAME.token.
var identities = []identity{
	{"admin", "admin", []string{"system:masters"}},
	{"node", "system:node:edge-a", []string{"system:nodes"}},
	{"neighbour", "system:node:edge-b", []string{"system:nodes"}},
	{"converge", "system:node:converge", []string{"system:nodes"}},
	{"kube-proxy", "system:kube-proxy", nil},
	{"nobody", "nobody", nil},
	{"controller-manager", "system:kube-controller-manager", nil},
	{"scheduler", "system:kube-scheduler", nil},
}

// authority is the CA of one run.
type authority struct {
	folder      string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	serial      int64
}

func newAuthority(folder string, names []string) (*authority, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := certificate(1, pkix.Name{CommonName: "weir-test-ca"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{folder, key, root, 1}
	if err := a.write("ca", der, key); err != nil {
		return nil, err
	}
	for _, name := range []string{"server", "kubelet"} {
		if err := a.server(name, names); err != nil {
			return nil, err
		}
	}
	if err := a.client("kubelet-client", identity{user: "kubelet-client", groups: []string{"system:masters"}}); err != nil {
		return nil, err
	}
	accounts, err := newKey()
	if err != nil {
		return nil, err
	}
	if err := a.writeKey("accounts", accounts); err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return nil, err
	}
	if err := a.writePEM("accounts.pub", "PUBLIC KEY", public); err != nil {
		return nil, err
	}
	return a, a.tokens()
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func certificate(serial int64, subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: subject,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// server issues a certificate for loopback, for the names that pods use, and for further names and addresses.
func (a *authority) server(name string, more []string) error {
	template := certificate(0, pkix.Name{CommonName: name})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	for _, name := range more {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.sign(name, template)
}

func (a *authority) client(name string, who identity) error {
	template := certificate(0, pkix.Name{CommonName: who.user, Organization: who.groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(name, template)
}

func (a *authority) sign(name string, template *x509.Certificate) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	a.serial++
	template.SerialNumber = big.NewInt(a.serial)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	return a.write(name, der, key)
}

func (a *authority) write(name string, der []byte, key crypto.Signer) error {
	if err := a.writePEM(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.writeKey(name, key)
}

func (a *authority) writeKey(name string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return a.writePEM(name+".key", "PRIVATE KEY", der)
}

func (a *authority) writePEM(file, kind string, der []byte) error {
	return os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// tokens gives every identity a token too, for clients that cannot use certificates.
func (a *authority) tokens() error {
	var lines strings.Builder
	for _, who := range identities {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		token := hex.EncodeToString(random)
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", token, who.user, who.name, strings.Join(who.groups, ","))
		if err := os.WriteFile(a.path(who.name+".token"), []byte(token), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(a.path("tokens.csv"), []byte(lines.String()), 0o600)
}

func (a *authority) writeIdentities(server, cut string) error {
	for _, who := range identities {
		if err := a.client(who.name, who); err != nil {
			return err
		}
		user := &api.AuthInfo{ClientCertificate: a.path(who.name + ".crt"), ClientKey: a.path(who.name + ".key")}
		if err := a.kubeconfigs(who.name, server, cut, user); err != nil {
			return err
		}
	}
	return nil
}

func (a *authority) kubeconfigs(name, server, cut string, user *api.AuthInfo) error {
	for suffix, url := range map[string]string{"": server, "-cut": cut} {
		config := api.NewConfig()
		config.Clusters["test"] = &api.Cluster{Server: url, CertificateAuthority: a.path("ca.crt")}
		config.AuthInfos[name] = user
		config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: name}
		config.CurrentContext = "test"
		if err := clientcmd.WriteToFile(*config, a.path(name+suffix+".kubeconfig")); err != nil {
			return err
		}
	}
	return nil
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }
