// Package pki makes the keys and certificates of a test cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A Pair is a certificate and its key, both as PEM.
type Pair struct {
	Cert, Key []byte
}

// An Authority signs the certificates of one cluster.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A test cluster does not outlive a day's work, but a laptop may sleep.
const validity = 30 * 24 * time.Hour

// NewAuthority makes a self-signed CA.
func NewAuthority(name string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := template(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pair, err := encode(der, key)
	return &Authority{Pair: pair, cert: cert, key: key}, err
}

// Client makes a client certificate for a user and its groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	t := template(pkix.Name{CommonName: user, Organization: groups})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(t)
}

// Server makes a serving certificate for the given names and addresses.
func (a *Authority) Server(hosts ...string) (Pair, error) {
	t := template(pkix.Name{CommonName: hosts[0]})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return a.sign(t)
}

// ServiceAccountKeys makes the pair that signs and verifies tokens. Cert holds
// the public key.
func ServiceAccountKeys() (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: block("PUBLIC KEY", public), Key: private}, nil
}

// Write stores the pair as NAME.crt and NAME.key in dir.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600)
}

func (a *Authority) sign(t *x509.Certificate) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %q: %w", t.Subject.CommonName, err)
	}
	return encode(der, key)
}

func template(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		// crypto/rand never fails on Linux.
		panic(err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	private, err := encodeKey(key)
	return Pair{Cert: block("CERTIFICATE", der), Key: private}, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return block("EC PRIVATE KEY", der), err
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
