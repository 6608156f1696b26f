/**
 * Everyday French words with accents, and everyday verbs. A word list has each of them once among hundreds of
 * thousands, though they are most of the accents that people write; training draws them more often.
 */
export const everydayWords: readonly string[] = `
  Genève Noël abcès accès américain américaine année années août après armée arrivée arrière arrêt   auprès beauté bibliothèque bibliothèques bientôt bière blé boulangère boîte brûler bâtiment bébé bête bêtise
  bœuf café cafés centimètre chaîne château chère chèvre cinéma cité clé clés collège colère commerçant complète
  complètement congrès connaître conquête contrôle cortège coûte coûter coûteux crinière crème création créer
  crêpe cuillère cuisinière célèbre céréales cérémonie côte côtes côté cœur cœurs degré dernière dernières
  derrière difficile difficulté différent différente diplôme drôle drôles dès début décembre décès défaut dégât
  déjeuner déjà départ député dépêche dépôt désert désir désolé désolée détail développement déçu dîne dîner
  effet employé employée enlevé enquête entraîner entraîneur entrée espèce européen européenne excès exprès
  expérience expérimenté extérieur fantôme façon façons fenêtre fiancé fidèle fièvre forêt français française
  fraîche fraîcheur frontière frère frères février fête garçon garçons glaçon goût goûter grâce gâteau
  génial général générale gêne haïr hâte hélas hôpital hôtel idée idées impôt infirmière intéressant intéressante
  intérieur intérêt journée kilomètre leçon leçons liberté lièvre lumière lycée là lâche lèvre lèvres léger
  légume légumes légère manière manège manœuvre marché matinée matière matériel maçon maître maïs modèle musée
  mère mères mètre mètres mécanique médecin médecine médicament mélange mémoire méthode métier métro même mêmes
  mûr naître naïf naïve nièce numéro né née nôtre nœud opéra opération ouvrière où paraître pensée   pièce pièces piège pièges piéton plaît plutôt politesse possibilité poussière poème poésie première premières
  privilège prière problème problèmes procès progrès propriété près pré précis précédent préférer prénom préparer
  présence présent président prêt prête pâte pâtes père pères pénible période pêche pêcheur qualité quantité
  quartier reconnaître requête reçu reçue rivière règle règles réalité récemment récent rédaction réfléchir
  régime région réponse réponses répéter réunion réussir réveil rêve rêves rôle rôles santé siècle société soirée
  sorcière spécial spéciale spécialité succès supérieur symptôme système sécurité série sérieuse sérieux sévère
  sûr sûrement sœur sœurs température tempête thème thé théâtre traîner très tâche téléphone télévision tête tôt
  université voilà véhicule vélo vélos vérité vêtement vêtements vôtre vœu vœux zèbre zéro Écosse à âge âme ça
  échange échec école écoles écolière écoute écouter écran écrire égal égale église électeur élection électricité
  électrique élève élèves élégant élément énergie épaule épicerie époque équilibre équipe étage état états
  éteindre étoile étoiles étonnant étranger étrangère étroit étude études étudiant étudiante été évident éviter
  événement être île œil œuf œufs œuvre œuvres
`
  .trim()
  .split(/\s+/);

/** Regular verbs, whose present (mange) and participle (mangé) differ by an accent alone. */
export const everydayVerbs: readonly string[] = `
  acheter aider aimer amener apporter arrêter arriver attraper baisser cacher casser cesser chanter
  chercher changer commander commencer compter conseiller continuer couper coûter créer crier danser déclarer décider
  dégager déjeuner demander déménager dépenser dessiner dîner donner durer échanger écouter écraser effacer élever
  embrasser emmener empêcher emprunter enlever enseigner entrer envoyer espérer essayer étonner étudier éviter expliquer
  fatiguer fermer fêter fumer gagner garder gêner goûter habiter hésiter imaginer inquiéter installer inviter jouer
  laisser laver lever louer manger marcher marier mériter monter montrer nager noter obliger occuper organiser oublier
  pardonner parler partager passer payer penser placer pleurer porter poser posséder pousser préférer préparer présenter
  presser prêter quitter raconter ramener refuser regarder régler regretter rencontrer rentrer réparer répéter
  représenter réserver respecter rester retourner retrouver réveiller rêver sauter sembler séparer signer sonner téléphoner
  tenter terminer tirer tomber toucher tourner tousser travailler traverser tromper trouver tuer utiliser verser visiter
  voler voter voyager
`
  .trim()
  .split(/\s+/);
